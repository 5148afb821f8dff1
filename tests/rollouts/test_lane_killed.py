"""`kill -9` of the lane in each state of a rollout: users are answered, and the same decision is made, once."""

from __future__ import annotations

from typing import Any

import pytest
from compared_together import write_units, write_version
from lane_process import lane_process
from loops import Loop, RunLoop
from ports import free_port
from serving import until
from stores import stored_rows

pytestmark = pytest.mark.slow

_STATES = ("pending", "running", "holding", "paused", "promoted")
_BY_HAND: dict[str, tuple[str, dict[str, Any]]] = {"paused": ("pause", {}), "promoted": ("promote", {"force": True})}


async def _reached(loop: Loop, state: str) -> None:
    async def there() -> bool:
        return bool((await loop.client.get("/rollouts/1")).json()["state"] == state)

    await until(there, 60)


@pytest.mark.parametrize("state", _STATES)
async def test_users_are_answered_and_the_decision_is_made_once(run_loop: RunLoop, store_url: str, state: str) -> None:
    async with lane_process(free_port()) as lane:
        if state != "pending":
            await lane.start()
        async with run_loop(serving={"mode": "on", "lane": {"base_url": f"{lane.url}/v1"}}) as loop:
            await write_version(store_url)
            plan = {"version": 8, "steps": [0.5], "min_time": "100ms" if state == "holding" else "1h", "grace": "100ms"}
            opened = await loop.client.post("/rollouts", json=plan)
            assert opened.status_code == 201, opened.text
            if state in _BY_HAND:
                await _reached(loop, "running")
                action, body = _BY_HAND[state]
                assert (await loop.client.post(f"/rollouts/1/{action}", json=body)).status_code == 200
            await _reached(loop, state)

            await lane.kill()
            for number in range(8):  # half of them, or more, are the version's
                answer = await loop.chat("hello", {"x-slipstream-session-id": f"user-{number}"})
                assert "prod" in answer["id"], "production answers the users whom the lane does not answer"
            await _reached(loop, state)
            await lane.start()
            if state == "pending":
                await _reached(loop, "running")
            await write_units(store_url, 20, failing="treatment")
            await _reached(loop, "rolled_back")

            actions = [action for (action,) in await stored_rows(store_url, "SELECT action FROM audit ORDER BY id")]
            assert actions.count("rollout_roll_back") == 1
            assert actions[:2] == ["rollout_open", "rollout_begin"]
            assert await stored_rows(store_url, "SELECT version, share FROM serving") == [(None, 0.0)]
