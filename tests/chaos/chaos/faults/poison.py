"""Exchanges that are meant to end the training side."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import httpx
from bench import poison

from chaos.faults.fault import fault
from chaos.record import canary

if TYPE_CHECKING:
    from chaos.world import World

_TIMEOUT = 20
"""Seconds: bodies of 8 MiB take a while where four schedules share two cores."""


@fault("poison", "exchanges that are meant to end the training side, of four kinds")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    async def send(client: httpx.AsyncClient, number: int, kind: str) -> None:
        task = f"poison-{number}"
        with contextlib.suppress(httpx.HTTPError):  # that is for the agents to judge
            if await _whole(client, task, poison.request(kind, number)):
                world.struck["poison"] += 1
            behind = f"behind-{task}"
            good = b'{"model": "prod", "messages": [{"role": "user", "content": "%s asks %s"}]}'
            if await _whole(client, behind, good % (behind.encode(), canary(behind).encode())):
                world.record.behind_poison.add(behind)

    # all kinds would keep two cores busy for longer than a schedule has: of these each run costs the start of a process
    endless = ("pattern", "doubling")
    kinds = [rng.choice(endless), *rng.sample([kind for kind in poison.KINDS if kind not in endless], 3)]
    world.note(f"poison: {', '.join(kinds)}")
    async with httpx.AsyncClient(base_url=rng.choice(world.urls), headers=world.headers, timeout=_TIMEOUT) as client:
        sending = asyncio.gather(*(send(client, number, kind) for number, kind in enumerate(kinds)))
        yield
        await sending


async def _whole(client: httpx.AsyncClient, task: str, body: bytes) -> bool:
    headers = {"content-type": "application/json", "x-slipstream-task-id": task}
    return (await client.post("/v1/chat/completions", content=body, headers=headers)).status_code == 200
