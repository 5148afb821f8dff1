"""Names of the package that need one of its extras, and what to say where it is not installed."""

from __future__ import annotations

import importlib.util

_NEEDS = {
    "tuner": ("pydantic",),
    "tuner.tuning": ("anyio", "fcntl", "tqdm"),
    "tuner.prompt": ("gepa", "tqdm"),
}
"""Packages that modules import when they are imported. httpx is always there, and fcntl wherever Python is but on
Windows."""


def missing(module: str) -> str | None:
    """The first package that a module of `slipstream_client` needs and that is not installed; None if none is."""
    package = module.partition(".")[0]
    needed = (*_NEEDS.get(package, ()), *(_NEEDS.get(module, ()) if module != package else ()))
    return next((name for name in needed if importlib.util.find_spec(name) is None), None)


def hint(name: str, needed: str, extra: str) -> str:
    """The error of a name whose extra is not installed, or that this system has no means for."""
    if needed == "fcntl":  # its locks keep two processes from one experiment
        return f"{name} needs file locks of Linux or macOS (fcntl), which Windows does not have: run it in WSL"
    return f"{name} needs {needed.partition('.')[0]}: pip install 'slipstream-sidecar-client[{extra}]'"
