"""One schedule, from its start to its verdict."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
from serving import until
from stores import stored_rows

from chaos import endpoint, explorers
from chaos.agents import Agent
from chaos.invariants import violations
from chaos.record import canary
from chaos.schedule import Schedule, Step
from chaos.world import World

_SETTLES = 60
"""Seconds after the last fault: the Explorer is asked again after 30 at the latest, as the training side is started."""
_AGENTS_END = 30
"""Seconds until an agent's last request has come to its end."""
_STILL = 0.5
_AFTERWARDS = 1.0
"""Seconds that the agents go on after the last fault, so that what was healed has something to do."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a schedule.

    Attributes:
        struck, impossible: by fault, how often it happened, and how often this machine did not allow it.
        counts: what was at stake, such as acknowledged feedback.
        settled: seconds from the last fault until everything was delivered or given up.
        violations: empty where all is well.
    """

    seed: int
    schedule: str
    seconds: float
    settled: float | None
    struck: dict[str, int]
    impossible: dict[str, int]
    counts: dict[str, int]
    violations: list[str]
    timeline: list[tuple[float, str]]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


async def judge(schedule: Schedule, folder: Path, agent: type[Agent] = Agent) -> Verdict:
    """Run a schedule in an empty folder.

    Args:
        agent: the kind that is at work.
    """
    began, settled, found = time.monotonic(), None, []
    world = World(schedule, folder)
    async with world.running():
        agents = [asyncio.create_task(agent(world, number).live()) for number in range(schedule.agents)]
        await asyncio.gather(*(_inject(world, step) for step in schedule.steps))
        healed = time.monotonic()
        await asyncio.sleep(_AFTERWARDS)
        try:
            await until(world.serves, _SETTLES)
            await _production_answers(world)
            world.ending.set()
            if (await asyncio.wait(agents, timeout=_AGENTS_END))[1]:
                raise TimeoutError
            await until(lambda: _drained(world), _SETTLES)
            await asyncio.sleep(_STILL)  # between two stages a task is in neither
            await until(lambda: _drained(world), _SETTLES)
            settled = time.monotonic() - healed
        except TimeoutError:
            found.append(f"it did not settle: {await _state(world)}")
        for task in agents:
            task.cancel()
        ended = await asyncio.gather(*agents, return_exceptions=True)
        found += [repr(one) for one in ended if isinstance(one, Exception)]
        world.note("the sidecars are ended in order")
        for sidecar in world.sidecars:
            sidecar.held += 1
            sidecar.signal(signal.SIGTERM, all_of_it=False)
        codes = [await sidecar.ended() for sidecar in world.sidecars]
        found += [f"a sidecar ended with {code}" for code in codes if code]
        endpoint.recall(world.endpoint_journal, world.record)
        found += await violations(world)
        counts = await _counts(world)
    return Verdict(
        seed=schedule.seed,
        schedule=str(schedule),
        seconds=round(time.monotonic() - began, 1),
        settled=settled,
        struck=dict(world.struck),
        impossible=dict(world.impossible),
        counts=counts,
        violations=found,
        timeline=world.timeline,
    )


async def _inject(world: World, step: Step) -> None:
    await asyncio.sleep(step.at)
    name = step.fault.name
    begun = time.monotonic()
    if step.fault.production:
        world.harmful.append((begun, float("inf")))
    world.note(f"{name} begins")
    async with step.fault.break_(world, random.Random(step.seed)):
        await asyncio.sleep(step.lasts)
    world.note(f"{name} is healed")
    if step.fault.production:
        for url in world.urls:  # a worker says so itself; one that was killed has to start first
            with contextlib.suppress(TimeoutError):  # it does not settle then either
                await until(explorers.answers(f"{url}/healthz"), _SETTLES)
        world.harmful.remove((begun, float("inf")))
        world.harmful.append((begun, time.monotonic()))


async def _production_answers(world: World) -> None:
    """Each sidecar carries a chat again."""
    body = {"model": "prod", "messages": [{"role": "user", "content": f"is it over? {canary('nobody')}"}]}
    for url in world.urls:

        async def well(url: str = url) -> bool:
            try:
                async with httpx.AsyncClient(timeout=5, headers=world.headers) as client:
                    return (await client.post(f"{url}/v1/chat/completions", json=body)).status_code == 200
            except httpx.TransportError:
                return False

        await until(well, 10)


async def _drained(world: World) -> bool:
    """Nothing is under way any more."""
    for number in range(len(world.sidecars)):
        try:
            status = await world.status(number)
        except (httpx.HTTPError, ValueError):
            return False
        under_way = (
            {"running", "ready", "committing"} & set(status["groups"])
            or "open" in status["tasks"]
            or status["selection"].get("undecided")
            or {"pending", "running", "open", "answered"} & set(status["runs"])
            or {"open", "ready", "committing"} & set(status["facade"]["groups"])
            or status["runs_active"]
            or status["capture"]["waiting"]
        )
        if under_way:
            return False
    return True


async def _state(world: World) -> str:
    states: list[dict[str, Any]] = []
    for number in range(len(world.sidecars)):
        try:
            status = await world.status(number)
            states.append(
                {name: status.get(name) for name in ("tasks", "groups", "runs", "facade", "commits", "explorer")}
            )
        except (httpx.HTTPError, ValueError) as error:
            states.append({"error": repr(error)})
    return str(states)[:1500]


async def _counts(world: World) -> dict[str, int]:
    record, effects = world.record, world.explorer.effects()
    stored = {row[0] for row in await stored_rows(world.store_url, "SELECT msg_id FROM calls")}
    whole = [answer for answer in record.answers if answer.whole and answer.status == 200]
    erased = {canary(task) for task in record.erased}
    counts = Counter(
        answers=len(record.answers),
        whole=len(whole),
        not_captured=sum(
            f"prod-{answer.number}" not in stored and answer.prompt.split()[-1] not in erased for answer in whole
        ),
        erased=sum(told is not None for told in record.erased.values()),
        elsewhere=record.elsewhere,
        feedback=len(record.feedback),
        marks=len(record.marks),
        finished=len(record.finished),
        facade=len(record.facade),
        experiences=len(effects),
        groups=len({effect.group_id for effect in effects}),
        refused=sum(count for (_, status), count in record.statuses.items() if status >= 500),
    )
    return dict(counts)
