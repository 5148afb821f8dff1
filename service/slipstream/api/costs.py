"""`GET /costs`: tokens of each day, and what they cost."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from slipstream.api.context import SidecarDep
from slipstream.api.scope import ScopeDep
from slipstream.settings.costs import Costs
from slipstream.store import token_days
from slipstream.usage import NONE, Kind, Tokens

router = APIRouter(tags=["operations"])

_SECONDS = 86400


class CostsQuery(BaseModel):
    """The number of days that are shown, with today."""

    model_config = ConfigDict(extra="forbid")

    days: Annotated[int, Field(ge=1, le=token_days.KEPT)] = 30


@router.get("/costs")
async def get_costs(query: Annotated[CostsQuery, Query()], sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Tokens of each day that had any, the newest first, by what they were used for, and their cost."""
    prices = sidecar.settings.costs
    await sidecar.token_days.step()  # what this sidecar has counted up to now
    first = token_days.day_of(time.time()) - query.days + 1
    async with sidecar.database.read() as session:
        found = await token_days.since(session, first, scope.tenant)
    return {
        "currency": prices.currency,
        "days": [
            {
                "day": datetime.fromtimestamp(day * _SECONDS, UTC).date().isoformat(),
                **total(prices, used),
                "kinds": {kind.value: total(prices, {kind: tokens}) for kind, tokens in used.items()},
            }
            for day, used in found.items()
        ],
    }


def total(prices: Costs, used: Mapping[Kind, Tokens]) -> dict[str, Any]:
    """The sum of what was used, and its cost; null where a kind has no price."""
    tokens, cost = NONE, prices.of(used)
    for some in used.values():
        tokens = tokens.plus(some)
    return {**tokens._asdict(), "cost": None if cost is None else round(cost, 6)}
