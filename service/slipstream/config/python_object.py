"""A class or function of the user's own, named in the configuration as `package.module:Object`."""

from __future__ import annotations

import pkgutil
from typing import Annotated, Any

from pydantic import AfterValidator


def load_object(path: str) -> Any:
    """The object that `package.module:Object` names.

    Raises:
        ValueError: the text has another form, the module fails to import, or it has no such name.
    """
    module, colon, name = path.partition(":")
    if not (module and colon and name):
        raise ValueError("a Python object as package.module:Object")
    try:
        return pkgutil.resolve_name(path)
    except Exception as error:  # importing runs the user's module, which can raise anything
        raise ValueError(f"a Python object that can be imported ({type(error).__name__}: {error})") from error


def _loadable(path: str) -> str:
    load_object(path)
    return path


PythonPath = Annotated[str, AfterValidator(_loadable)]
"""The text of such a name, refused where the object cannot be loaded; `load_object` loads it."""
