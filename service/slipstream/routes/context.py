"""What every route has at hand."""

from typing import Annotated

from fastapi import Depends, Request

from slipstream.sidecar import Sidecar


def _sidecar(request: Request) -> Sidecar:
    sidecar: Sidecar = request.app.state.sidecar
    return sidecar


SidecarDep = Annotated[Sidecar, Depends(_sidecar)]
