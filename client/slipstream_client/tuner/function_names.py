"""A function by its name, for another process: Trinity's workers find the user's workflow and judge so.

A function of a module is `package.module:function`. One of the script that was started, which is `__main__` and has no
name that another process could import, is `/where/it/lies/script.py:function`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

_importing: ContextVar[str | None] = ContextVar("slipstream_importing", default=None)
"""The module that is being imported for one of its functions, if that is why the code runs that asks."""


@dataclass(frozen=True)
class FunctionName:
    """Place of a function.

    Attributes:
        name: `module:function` or `/path/of/script.py:function`.
        folder: what must be on `sys.path` for its imports, as it was here; None for an installed package.
    """

    name: str
    folder: Path | None


def importing() -> str | None:
    """The module that is being imported here for one of its functions, or None."""
    return _importing.get()


def name_of(function: Callable[..., Any], field: str) -> FunctionName:
    """The name under which another process finds `function`.

    Args:
        field: the parameter that holds it, for the error.

    Raises:
        ValueError: for what has no such name: a lambda, a function within a function, an instance that is callable,
            or a function of an interactive session.
    """
    qualified = getattr(function, "__qualname__", None)
    if qualified is None:
        raise ValueError(f"{field} is {function!r}, an object without a name to import: write a function that calls it")
    module = function.__module__
    if "<lambda>" in qualified:
        raise ValueError(f"{field} is a lambda, which another process cannot import: give it a name with `def`")
    if "<locals>" in qualified:
        raise ValueError(
            f"{field} is {qualified!r}, a function within a function, which another process cannot import: "
            "define it at the top of its module"
        )
    where = _module_name(module, field)
    if _attribute(vars(sys.modules[module]), qualified) != function:
        raise ValueError(f"{field} is not what {where}:{qualified} names: define it at the top of its module")
    return FunctionName(f"{where}:{qualified}", _folder(module))


def function_named(name: str, folders: Iterable[str] = ()) -> Callable[..., Any]:
    """The function of that name; `folders` come first on `sys.path` from now on, as they did where it was named.

    Raises:
        ImportError: its module cannot be imported, or holds no such function.
        ValueError: the name has no colon, or its script calls `tune()` while it is imported.
    """
    where, colon, qualified = name.rpartition(":")
    if not colon:
        raise ValueError(f"{name!r} is not of the form module:function")
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    with _imported_as(where):
        module = _script(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    function: Callable[..., Any] | None = _attribute(vars(module), qualified)
    if function is None:
        raise ImportError(f"{where} has no function {qualified!r}")
    return function


def _module_name(module: str, field: str) -> str:
    if module != "__main__":
        return module
    main = sys.modules["__main__"]
    if main.__spec__ is not None:  # python -m package.module
        return main.__spec__.name
    if (file := getattr(main, "__file__", None)) is None:
        raise ValueError(f"{field} was defined in an interactive session: another process can only import it of a file")
    return str(Path(file).resolve())


def _folder(module: str) -> Path | None:
    """The folder on `sys.path` that holds a module's first package."""
    loaded = sys.modules[module]
    if (file := getattr(loaded, "__file__", None)) is None:
        return None
    path = Path(file).resolve()
    package = loaded.__spec__.name if loaded.__spec__ is not None else ""  # a script has none
    folder = path.parents[package.count(".") + (path.stem == "__init__")]
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib", "stdlib")}
    return None if folder in installed else folder


def _attribute(names: Mapping[str, Any], qualified: str) -> Any:
    first, *rest = qualified.split(".")
    return reduce(lambda found, name: getattr(found, name, None), rest, names.get(first))


def _script(path: Path) -> ModuleType:
    """A script as a module of a name of its own, so that one called `test.py` hides nothing."""
    name = f"slipstream_script_{path.stem}"
    loaded = sys.modules.get(name)
    if loaded is not None and loaded.__file__ == str(path):
        return loaded
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.exists():
        raise ImportError(f"there is no script {path}: it must lie at the same place on each of Trinity's machines")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where pickle and dataclasses look for it
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _imported_as(module: str) -> Iterator[None]:
    token = _importing.set(module)
    try:
        yield
    finally:
        _importing.reset(token)
