"""The client of a Slipstream sidecar, for agents: marks, feedback, agent replay, and a tuner.

Names are imported when they are first used, so that `import slipstream_client` costs an agent next to nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_WHERE: dict[str, str] = {}
"""Which module of this package has a public name."""

__all__ = [*_WHERE, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
