"""`slipstream key`: API keys of the sidecar."""

from __future__ import annotations

from typing import Annotated

import typer

commands = typer.Typer(help="API keys of the sidecar.", no_args_is_help=True)


@commands.command()
def new(
    roles: Annotated[
        list[str], typer.Option("--role", help="proxy, feedback, runs, admin or metrics; give several.", show_default=False)
    ],
    name: Annotated[
        str, typer.Option(help="What it is called in access.keys, metrics and logs (default: its first role).")
    ] = "",
    tenant: Annotated[
        str | None,
        typer.Option(
            help="Whose sessions, tasks and feedback it reaches (default: the tenant of all keys that name none).",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make an API key: it is shown once, beside the line for access.keys that lets it in."""
    from slipstream.access.keys import as_hash, new_key
    from slipstream.access.settings import entry

    made = new_key()
    print(f"key:   {made}\nentry: {entry(name or roles[0], roles, as_hash(made), tenant)}")
