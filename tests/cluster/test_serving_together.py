"""Two sidecars on one PostgreSQL send the same users to the lane, and a kill at one of them is a kill at both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from scripted import ScriptedExplorer
from serving import serving, until
from sidecars_sharing import sidecars


@pytest.mark.slow
async def test_two_sidecars_agree_on_each_user_and_on_a_kill(new_postgres: Callable[[], str]) -> None:
    lane = ScriptedExplorer(answer="the lane says {n}")
    lane.version = 12
    async with serving(lane.app()) as url:
        section = {"mode": "on", "lane": {"base_url": f"{url}/v1"}}
        async with sidecars(new_postgres(), ScriptedExplorer(), serving=section) as both:
            first, second = both

            async def ready() -> bool:
                states = [(await one.client.get("/serving")).json() for one in both]
                return all(state["ready"] for state in states)

            await until(ready)
            said = await first.client.post("/serving/share", json={"version": 8, "share": 0.5})
            assert said.status_code == 200, said.text

            async def arms(number: int) -> list[bool]:
                answers = [await one.chat("hello", {"x-slipstream-session-id": f"s-{number}"}) for one in both]
                return ["the lane" in answer["choices"][0]["message"]["content"] for answer in answers]

            async def both_serve() -> bool:
                return any([(await arms(number))[1] for number in range(20)])

            await until(both_serve)
            found = [await arms(number) for number in range(30)]
            assert all(one == other for one, other in found)
            assert 0 < sum(one for one, _ in found) < len(found)

            await first.client.post("/serving/kill")
            assert not any([(await arms(number))[0] for number in range(5)]), "at once where it was said"

            async def killed() -> bool:
                return bool((await second.client.get("/metrics")).text.count("slipstream_serving_killed 1.0"))

            await until(killed)
            asked = len(lane.chats)
            await asyncio.gather(*(arms(number) for number in range(30)))
            assert len(lane.chats) == asked
            await second.client.post("/serving/revive")

            async def revived() -> bool:
                return bool((await first.client.get("/metrics")).text.count("slipstream_serving_killed 0.0"))

            await until(revived)
            assert [await arms(number) for number in range(30)] == found
