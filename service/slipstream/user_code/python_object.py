"""A class or function of the user's own, named in the configuration as `package.module:Object`.

The module may be installed, or lie beside the configuration or in the working directory. Every command reads the
configuration by `load_settings`, which calls `search_in`, so all of them find the same modules.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from pydantic import AfterValidator

_WANTED = "a Python object that can be imported"
_folders: list[str] = []
_importing: ContextVar[bool] = ContextVar("importing", default=True)  # settings are made by __init__: no context there


@contextmanager
def importing(allowed: bool) -> Iterator[None]:
    """Let settings that are read in this block import what they name, or check the form of the names alone."""
    token = _importing.set(allowed)
    try:
        yield
    finally:
        _importing.reset(token)


def may_import() -> bool:
    """Return whether settings may import what they name, to check it."""
    return _importing.get()


def search_in(*folders: Path) -> None:
    """Let modules that lie in these folders be imported, after the installed ones.

    For the rest of the process: a function of the user's own may import its neighbours when it is called.
    """
    for folder in map(str, (folder.absolute() for folder in folders)):
        if folder not in _folders:
            _folders.append(folder)
        if folder not in sys.path:
            sys.path.append(folder)


def load_object(path: str) -> Any:
    """The object that `package.module:Object` names.

    Raises:
        ValueError: the text has another form, the module is not found or fails to import, or it has no such name.
    """
    module, names = _parts(path)
    found: Any = _imported(module)
    for name in names.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise ValueError(f"{_WANTED}; found no {name} in {_described(found)}{_similar(found, name)}") from None
    return found


def check_call(function: Any, argument: str | None, params: Mapping[str, Any], path: str) -> None:
    """Refuse a function that cannot be called with one argument and these keyword arguments.

    Args:
        argument: what the argument is, for the error; None for a class that is made of `params` alone.
        path: what the configuration calls it.

    Raises:
        ValueError: it takes other arguments. What does not tell its arguments, as some of C's do, is let pass.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*(() if argument is None else (None,)), **params)
    except TypeError as error:
        given = [argument or "nothing", *([f"params {', '.join(params)}"] if params else [])]
        raise ValueError(
            f"Python code that takes {' and '.join(given)}; found {path.partition(':')[2]}{signature}: {error}"
        ) from None


def _parts(path: str) -> tuple[str, str]:
    module, colon, names = path.partition(":")
    if not (module and colon and names):
        raise ValueError("a Python object as package.module:Object")
    return module, names


def _imported(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise _failed(module, error) from error  # it was found, and one that it imports was not
        places = ", ".join((*_folders, "the installed packages"))
        raise ValueError(f"{_WANTED}; found no module {error.name} (looked in {places})") from error
    except (Exception, SystemExit) as error:  # importing runs the user's module, which can raise anything
        raise _failed(module, error) from error


def _failed(module: str, error: BaseException) -> ValueError:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return ValueError(
        f"{_WANTED}; found that importing {module} raises {type(error).__name__}: {error} "
        f"({frame.filename}, line {frame.lineno})"
    )


def _described(found: Any) -> str:
    if isinstance(found, ModuleType):
        return f"the module {found.__name__} ({getattr(found, '__file__', None) or 'built in'})"
    return getattr(found, "__qualname__", None) or type(found).__name__


def _similar(found: Any, name: str) -> str:
    near = difflib.get_close_matches(name, [known for known in dir(found) if not known.startswith("_")], n=1)
    return f", which has {near[0]}" if near else ""


def _loadable(path: str) -> str:
    if may_import():
        load_object(path)
    else:
        _parts(path)
    return path


PythonPath = Annotated[str, AfterValidator(_loadable)]
"""The text of such a name, refused where the object cannot be loaded; `load_object` loads it. Within `importing(False)`
the form is all that is checked."""
