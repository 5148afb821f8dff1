"""What every route has at hand."""

from typing import Annotated

from fastapi import Depends, Request

from slipstream.errors import RequestError
from slipstream.sidecar import Sidecar


def _any_sidecar(request: Request) -> Sidecar:
    sidecar: Sidecar = request.app.state.sidecar
    return sidecar


def _sidecar(request: Request) -> Sidecar:
    sidecar = _any_sidecar(request)
    if not sidecar.started:
        raise RequestError("the store is away, and is waited for; try again", status=503, code="store_failed")
    return sidecar


SidecarDep = Annotated[Sidecar, Depends(_sidecar)]
"""One that has started; without its store, 503."""

AnySidecarDep = Annotated[Sidecar, Depends(_any_sidecar)]
"""One that may still wait for its store."""
