"""`POST /commit`: deliver now."""

from __future__ import annotations

from fastapi import APIRouter

from slipstream.errors import ExplorerError, RequestError
from slipstream.routes.context import SidecarDep

router = APIRouter(tags=["commit"])


@router.post("/commit")
async def post_commit(sidecar: SidecarDep) -> dict[str, int | None]:
    """Deliver every ready group now, and say how much that was. A body is not read."""
    try:
        return (await sidecar.committer.commit("request")).as_dict()
    except ExplorerError as error:
        raise RequestError(
            f"the Explorer did not take the commit, which stays to be delivered: {error}",
            status=503,
            code="explorer_unavailable",
        ) from error
