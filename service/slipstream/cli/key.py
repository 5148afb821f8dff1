"""`slipstream key`: API keys of the sidecar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from slipstream.errors import SlipstreamError

commands = typer.Typer(help="API keys of the sidecar.", no_args_is_help=True)


@commands.command()
def new(
    roles: Annotated[
        list[str],
        typer.Option(
            "--role",
            help="proxy, feedback, runs, annotator, viewer, operator, admin or metrics; give several.",
            show_default=False,
        ),
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
    expires: Annotated[
        str | None,
        typer.Option(help="After this time it is refused, such as 90d (default: never).", show_default=False),
    ] = None,
) -> None:
    """Make an API key: it is shown once, beside the line for access.keys that lets it in."""
    from slipstream.access.keys import as_hash, new_key
    from slipstream.access.settings import entry

    made = new_key()
    until = None if expires is None else _in_future(expires)
    print(f"key:   {made}\nentry: {entry(name or roles[0], roles, as_hash(made), tenant, until)}")


def _in_future(text: str) -> datetime:
    from pydantic import TypeAdapter, ValidationError

    from slipstream.config.units import PositiveDuration

    try:
        return datetime.now(UTC) + timedelta(seconds=TypeAdapter(PositiveDuration).validate_python(text))
    except (ValidationError, OverflowError) as error:
        raise SlipstreamError(f"--expires: expected a duration such as 90d or 12h, found {text!r}") from error
