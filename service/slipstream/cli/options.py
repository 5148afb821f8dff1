"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from slipstream import logs

Overlays = Annotated[
    list[Path] | None,
    typer.Option(
        "--overlay", help="A file merged over it; give several in order, a later one wins.", show_default=False
    ),
]


class LogOptions(NamedTuple):
    """Log options of the command line; None leaves the choice to the configuration or the default."""

    level: logs.Level | None
    format: logs.Format | None
