"""Several sidecars on one PostgreSQL, under load, one of them killed every few seconds and started again at once.

    python -m chaos.alternating_kills --minutes 5

The agents of the other schedules, but persistent: what fails because of a kill they ask again, of the other sidecar.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
from bench import region
from serving import until

from chaos.agents import Agent
from chaos.explorers import answers
from chaos.faults import Fault
from chaos.one import Verdict, judge
from chaos.record import Recording
from chaos.schedule import Schedule, Step
from chaos.world import World

SIDECARS = 2
_BACK = 120.0
"""Seconds that a sidecar may take to serve again, on a machine that is busy."""
_PATIENCE = 60.0
"""Seconds until an agent gives up to ask."""


def schedule(seconds: float, every: float, agents: int, seed: int) -> Schedule:
    """Kills for so long, about `every` seconds apart: mostly the one that the last kill was not for."""
    rng = random.Random(f"slipstream in turns {seed}")
    at, victim, steps = every, 0, list[Step]()
    while at < seconds:
        steps.append(Step(round(at, 2), _FAULTS[victim], 0.0, rng.getrandbits(32)))
        at += every * rng.uniform(0.5, 1.5)
        victim = (victim + (rng.random() < 0.8)) % SIDECARS
    return Schedule(seed, "postgresql", SIDECARS, 1, "scripted", agents, tuple(steps))


def _killed(victim: int) -> Fault:
    @asynccontextmanager
    async def kill(world: World, _: random.Random) -> AsyncIterator[None]:
        sidecar = world.sidecars[victim]
        world.struck[f"sidecar {victim} killed"] += sidecar.alive
        await sidecar.kill()  # the world starts it again
        yield
        try:
            await until(answers(f"{world.urls[victim]}/readyz"), _BACK)
        except TimeoutError:
            world.record.wrong.append(f"sidecar {victim} did not serve again in {_BACK:.0f} s")

    name = f"sidecar {victim} killed"
    broken: partial[AbstractAsyncContextManager[None]] = partial(kill)
    return Fault(name, name, broken, production=True)


_FAULTS = [_killed(victim) for victim in range(SIDECARS)]


class Persistent(Agent):
    """An agent whose requests go to the other sidecar where one does not answer."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number)
        self._recorded = httpx.AsyncClient(transport=_Elsewhere(world), timeout=10)


class _Elsewhere(httpx.AsyncBaseTransport):
    """Asks the sidecars in turn, until one of them begins to answer."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._inner = Recording(world.record)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        urls = [httpx.URL(url) for url in self._world.urls]
        place = next(place for place, url in enumerate(urls) if url.port == request.url.port)
        async with asyncio.timeout(_PATIENCE):
            while True:
                try:
                    return await self._inner.handle_async_request(request)
                except httpx.TransportError:
                    self._world.record.elsewhere += 1
                    place = (place + 1) % len(urls)
                    request.url = request.url.copy_with(port=urls[place].port)
                    await asyncio.sleep(0.05)

    async def aclose(self) -> None:
        await self._inner.aclose()


def table(verdict: Verdict, minutes: float, command: str) -> str:
    """What was done, and what came of it."""
    counts = Counter(verdict.counts)
    said = counts["feedback"] + counts["marks"]
    rows = {
        "kills (`kill -9` of all processes of a sidecar)": sum(verdict.struck.values()),
        "requests to production, compared byte by byte": counts["answers"],
        "of these, asked again of the other sidecar": counts["elsewhere"],
        "calls whole at their agent and not captured: killed before they were stored, as documented": counts[
            "not_captured"
        ],
        "feedback and marks acknowledged": said,
        "ends of replays, rewards of the facade acknowledged": counts["finished"] + counts["facade"],
        "groups trained on, each whole and in one commit": counts["groups"],
        "experiences trained on, each once": counts["experiences"],
        "acknowledged and lost, trained in part or twice": len(verdict.violations),
    }
    lines = [f"`{command}`: {minutes:g} minutes, {SIDECARS} sidecars on one PostgreSQL.", "", "| | |", "|---|---:|"]
    return "\n".join([*lines, *(f"| {what} | {count:,} |" for what, count in rows.items())])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.alternating_kills", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="of load and kills (default: %(default)s)")
    parser.add_argument("--every", type=float, default=4.0, help="seconds between two kills (default: %(default)s)")
    parser.add_argument("--agents", type=int, default=8, help="at once (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="(default: %(default)s)")
    parser.add_argument("--keep", type=Path, help="keep the logs and journals in this folder")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the table into this page")
    options = parser.parse_args()
    plan = schedule(options.minutes * 60, options.every, options.agents, options.seed)
    with tempfile.TemporaryDirectory(prefix="turns-") as name:
        folder = Path(name)
        try:
            verdict = asyncio.run(judge(plan, folder, agent=Persistent))
        finally:
            if options.keep:
                shutil.copytree(folder, options.keep, dirs_exist_ok=True, ignore_dangling_symlinks=True)
    text = table(verdict, options.minutes, "make soak-cluster")
    print(text)
    for violation in verdict.violations[:50]:
        print(f"VIOLATION {violation}")
    if options.write and not verdict.violations:
        region.write(options.write, "cluster", text)
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
