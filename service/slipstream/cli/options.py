"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from slipstream import logs

Overlays = Annotated[
    list[Path] | None,
    typer.Option(
        "--overlay", help="A file merged over it; give several in order, a later one wins.", show_default=False
    ),
]

Url = Annotated[str | None, typer.Option(help="Of the sidecar (default: `listen` of --config).", show_default=False)]
Config = Annotated[Path, typer.Option(help="The sidecar's file, for its address.")]
SIDECAR_FILE = Path("sidecar.yaml")


def _key(roles: str) -> Any:
    """The option for a key that has one of these roles."""
    return typer.Option(envvar="SLIPSTREAM_API_KEY", help=f"A key with the role {roles}.", show_default=False)


AdminKey = Annotated[str | None, _key("admin")]
OperatorKey = Annotated[str | None, _key("operator or admin")]
ReaderKey = Annotated[str | None, _key("viewer, operator, metrics or admin")]
TaskKey = Annotated[str | None, _key("feedback, viewer, operator, metrics or admin; to read what was said, admin")]
ReaderOrOperatorKey = Annotated[str | None, _key("operator or admin; to look, also viewer or metrics")]

Tenant = Annotated[
    str | None, typer.Option(help="Only of this tenant, with a key that reaches all.", show_default=False)
]
_WHEN = "an age such as 2h, a time such as 2026-11-26T18:00, or Unix seconds"
Since = Annotated[str | None, typer.Option(help=f"Only from then on: {_WHEN}.", show_default=False)]
Until = Annotated[str | None, typer.Option(help="Only before then, as --since.", show_default=False)]


class LogOptions(NamedTuple):
    """Log options of the command line; None leaves the choice to the configuration or the default."""

    level: logs.Level | None
    format: logs.Format | None
