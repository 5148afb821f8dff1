"""Standard output, as commands write to it for people."""

from __future__ import annotations

import io
import os
import sys

from rich.console import Console

_UNBOUND = 10_000
"""Columns of a list that is written to a file or a pipe: its rows are a line each, and nothing of them is cut."""


def console(*, rows: bool = False) -> Console:
    """Return the console of standard output. Brackets in text are text, and no markup.

    Args:
        rows: whether lines may be as long as they are where no terminal shows them, and COLUMNS is not set.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # of an encoding that lacks a letter
    unbound = rows and not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(markup=False, highlight=False, emoji=False, width=_UNBOUND if unbound else None)
