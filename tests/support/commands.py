"""The `slipstream` command, run in this process: a process of its own takes seconds to start."""

from __future__ import annotations

import asyncio
from functools import cache

from click.testing import CliRunner
from typer.main import get_command

from slipstream.cli import app
from slipstream.errors import SlipstreamError

_command = cache(get_command)
"""Typer makes all commands anew each time, which takes longer than most of them do."""


async def slipstream(*words: str, columns: int | None = 200) -> tuple[int, str, str]:
    """Exit code, stdout and stderr, on a terminal of so many columns; None for no terminal.

    It runs in a thread, so that the sidecar that it asks can answer from the test's event loop.
    """
    columns_of = {"COLUMNS": None if columns is None else str(columns)}
    result = await asyncio.to_thread(CliRunner().invoke, _command(app), list(words), env=columns_of)
    if isinstance(result.exception, SlipstreamError):  # what `main` makes of it
        return 2, result.stdout, f"slipstream: {result.exception}\n"
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr
