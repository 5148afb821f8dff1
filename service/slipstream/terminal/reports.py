"""Reports on models, on the terminal. Its texts come from the report, and are harmless already."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from slipstream.terminal.screen import console


def show(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table under its title."""
    table = Table(*head, title=title or None, title_justify="left")
    for row in rows:
        table.add_row(*row)
    console().print(table)
