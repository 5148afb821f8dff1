"""Dependencies that every route can use."""

from typing import Annotated

from fastapi import Depends, Request

from slipstream.errors import RequestError
from slipstream.redaction.rules import RedactionFailed
from slipstream.sidecar import Sidecar


def _any_sidecar(request: Request) -> Sidecar:
    sidecar: Sidecar = request.app.state.sidecar
    return sidecar


def _sidecar(request: Request) -> Sidecar:
    sidecar = _any_sidecar(request)
    if not sidecar.started:
        raise RequestError("the store is away, and is waited for; try again", status=503, code="store_failed")
    return sidecar


def stored_id(sidecar: Sidecar, name: str) -> str:
    """The id under which the store has what a caller calls by this one: itself, but for one that holds something that
    `capture.redact` takes out.

    Raises:
        RequestError: a redaction hook failed on it.
    """
    try:
        return sidecar.redactor.redact_id(name)
    except RedactionFailed as error:
        raise RequestError(str(error), status=422, code="redaction_failed") from error


SidecarDep = Annotated[Sidecar, Depends(_sidecar)]
"""One that has started; without its store, 503."""

AnySidecarDep = Annotated[Sidecar, Depends(_any_sidecar)]
"""One that may still wait for its store."""
