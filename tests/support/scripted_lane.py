"""A lane that answers users by a script."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from scripted import ScriptedExplorer
from serving import serving


class ScriptedLane(ScriptedExplorer):
    """Another server than the Explorer, with ids of its own."""

    def reply(self, msg_id: str, body: dict[str, Any]) -> dict[str, Any]:
        return super().reply(f"lane-{msg_id}", body)


@asynccontextmanager
async def lane_section(answer: str, step: int = 12) -> AsyncIterator[dict[str, Any]]:
    """The section `serving` with a lane that answers so, and shows this step."""
    lane = ScriptedLane(answer=answer)
    lane.version, lane.model = step, "/kept/8"
    async with serving(lane.app()) as url:
        yield {"mode": "on", "lane": {"base_url": f"{url}/v1"}}
