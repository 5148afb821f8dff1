"""The commands of `slipstream` with their options, as its own parser knows them."""

from __future__ import annotations

import html
import re
from typing import Any

import typer
from typer.cli import get_docs_for_click
from typer.main import get_command

from slipstream.cli import app


def page() -> str:
    """Return typer's own Markdown of the command line, without its title."""
    command = get_command(app)
    _whole(command)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="slipstream")
    _, _, body = html.unescape(text).partition("**Usage**")
    return re.sub(r"^```console\n\$ ", "```text\n", f"**Usage**{body}", flags=re.MULTILINE)


def _whole(command: Any) -> None:
    """Have each list of commands show the first sentence of a command, which would be cut after 45 characters."""
    for below in getattr(command, "commands", {}).values():
        below.short_help = (below.help or "").split("\n\n")[0]
        _whole(below)
