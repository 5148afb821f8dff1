"""`GET /keys`: the API keys by their names, and the use of each."""

from __future__ import annotations

from typing import Any, get_args

from fastapi import APIRouter

from slipstream.access.expiry import State
from slipstream.access.keyring import Key
from slipstream.access.ledger import A_KEYS, NOBODY, NOBODYS, Outcome, Use
from slipstream.access.settings import Role
from slipstream.api.context import AnySidecarDep
from slipstream.api.scope import ScopeDep

router = APIRouter(tags=["operations"])


@router.get("/keys")
async def get_keys(sidecar: AnySidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """The keys that the sidecar knows, without their hashes, and what became of their requests. A key of one tenant
    sees those of that tenant."""
    use = sidecar.ledger.use()
    own = (key for key in sidecar.keys.now() if scope.tenant in (None, key.scope.tenant))
    without = use.get(NOBODY, Use())
    return {
        "asked_for": sidecar.settings.access.asked_for,
        "keys": [_shown(key, sidecar.key_expiry.state(key), use.get(key.name, Use())) for key in own],
        "without_key": None if scope.tenant is not None else _requests(without, NOBODYS),
    }


def _shown(key: Key, state: State, use: Use) -> dict[str, Any]:
    return {
        "name": key.name,
        "roles": [role for role in get_args(Role) if role in key.roles],
        "tenant": key.scope.tenant,
        "from": "keys_file" if key.from_file else "configuration",
        "state": state,
        "expires_at": key.expires,
        "capture": key.capture,
        "requests_per_minute": key.requests_per_minute,
        "requests": _requests(use, A_KEYS),
        "last_used_at": use.last_at or None,
    }


def _requests(use: Use, outcomes: tuple[Outcome, ...]) -> dict[str, int]:
    return {outcome: use.requests[outcome] for outcome in outcomes}
