"""The embedded engine as commands see it: its extra, its files and its signals."""

from __future__ import annotations

import contextlib
import importlib.util
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from slipstream.errors import SlipstreamError
from slipstream.local.extras import EMBEDDED

if TYPE_CHECKING:
    from slipstream.embedded.config import EngineConfig


def engine_config(path: Path, mode: Literal["serve", "train"], overlays: list[Path] | None) -> EngineConfig:
    """Read and check a file of the embedded engine, before torch is imported: that takes seconds."""
    from slipstream.embedded.config import load_config
    from slipstream.embedded.model_directory import check_model_directory

    with embedded_extra():
        find("torch")
    config = load_config(path, mode, overlays or ())
    check_model_directory(config.model.model_path)
    return config


def exit_0_on_signals() -> None:
    """uvicorn, when it has ended in order, raises the signal that ended it once more for whoever handled it before."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))


def find(library: str) -> None:
    """An error as from importing it, without the seconds that importing it takes."""
    if importlib.util.find_spec(library) is None:
        raise ModuleNotFoundError(f"No module named {library!r}", name=library)


@contextlib.contextmanager
def embedded_extra() -> Iterator[None]:
    """A missing library of the extra is the user's to install, and is told so."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "slipstream":
            raise
        raise SlipstreamError(f"{error}\nthis command needs the embedded engine; install it\n{EMBEDDED}") from error
