"""`POST /commit`: deliver now."""

from __future__ import annotations

from fastapi import APIRouter

from slipstream.api.context import SidecarDep
from slipstream.api.scope import ScopeDep, author
from slipstream.delivery.delivered import Delivered
from slipstream.errors import ExplorerError, RequestError
from slipstream.sidecar import Sidecar
from slipstream.store.audit import Author

router = APIRouter(tags=["commit"])


@router.post("/commit")
async def post_commit(sidecar: SidecarDep, scope: ScopeDep) -> dict[str, int | None]:
    """Deliver every ready group now, and say how much that was. A body is not read."""
    return (await deliver_now(sidecar, author(scope))).as_dict()


async def deliver_now(sidecar: Sidecar, by: Author) -> Delivered:
    """Deliver because a client asks for it.

    Raises:
        RequestError: 503, the Explorer is away or failed.
    """
    try:
        return await sidecar.deliveries.committer.commit("request", by=by)
    except ExplorerError as error:
        raise RequestError(
            f"the Explorer did not take the commit, which stays to be delivered: {error}",
            status=503,
            code="explorer_unavailable",
        ) from error
