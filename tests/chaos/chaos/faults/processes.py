"""Processes that are killed and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from chaos.faults.fault import LONG, fault
from chaos.log_pipe import LogPipe

if TYPE_CHECKING:
    from chaos.explorers import Explorer
    from chaos.processes import Process
    from chaos.world import World


@asynccontextmanager
async def _dead(part: Process | Explorer, kill: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    part.held += 1
    try:
        await kill()
        yield
    finally:
        part.held -= 1


@fault("sidecar_killed", "kill -9 of a sidecar with all its processes", production=True)
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    sidecar = rng.choice(world.sidecars)
    world.struck["sidecar_killed"] += sidecar.alive
    async with _dead(sidecar, sidecar.kill):
        yield


@fault("parent_killed", "kill -9 of a sidecar's parent process alone", production=True)
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    sidecar = rng.choice(world.sidecars)
    world.struck["parent_killed"] += sidecar.alive
    async with _dead(sidecar, partial(sidecar.kill, all_of_it=False)):
        yield


@fault("training_killed", "kill -9 of a sidecar's training side", longest=0.5)
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    if (pid := rng.choice(world.sidecars).children().get("training")) is not None:
        os.kill(pid, signal.SIGKILL)
        world.struck["training_killed"] += 1
    yield


@fault("worker_killed", "kill -9 of a worker of the proxy", production=True, longest=0.5)
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    children = rng.choice(world.sidecars).children()
    workers = sorted(name for name in children if name.startswith("proxy"))
    if workers:
        os.kill(children[rng.choice(workers)], signal.SIGKILL)
        world.struck["worker_killed"] += 1
    yield


@fault("production_killed", "kill -9 of the production model", production=True)
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    world.struck["production_killed"] += world.production.alive
    async with _dead(world.production, world.production.kill):
        yield


@fault("explorer_killed", "kill -9 of the Explorer")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    world.struck["explorer_killed"] += world.explorer.alive
    async with _dead(world.explorer, world.explorer.kill):
        yield


@fault("endpoint_killed", "kill -9 of the endpoint of agents, with the agents that it runs", needs="endpoint")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    assert world.endpoint is not None
    world.struck["endpoint_killed"] += world.endpoint.alive
    async with _dead(world.endpoint, world.endpoint.kill):
        yield


@fault("sidecar_stopped", "SIGSTOP of a sidecar, for longer than each timeout", production=True)
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    sidecar = rng.choice(world.sidecars)
    world.struck["sidecar_stopped"] += sidecar.alive
    sidecar.signal(signal.SIGSTOP)
    stopped = sidecar.pid  # by its end it may be another process, whose earlier children are still stopped
    yield
    await asyncio.sleep(LONG)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(stopped, signal.SIGCONT)


@fault("training_stopped", "SIGSTOP of a sidecar's training side, for longer than each timeout")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    pid = rng.choice(world.sidecars).children().get("training")
    if pid is None:
        yield
        return
    os.kill(pid, signal.SIGSTOP)
    world.struck["training_stopped"] += 1
    yield
    await asyncio.sleep(LONG)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@fault("training_hung", "SIGSTOP of a sidecar's training side, for good: its parent is to replace it")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    pid = rng.choice(world.sidecars).children().get("training")
    if pid is not None:
        os.kill(pid, signal.SIGSTOP)
        world.struck["training_hung"] += 1
    yield


@fault("log_stalled", "the pipe at a sidecar's stderr is full, and not read")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    log = rng.choice(world.sidecars).log
    assert isinstance(log, LogPipe)
    log.stall()
    world.struck["log_stalled"] += 1
    yield
    await asyncio.sleep(LONG)
    log.read_on()


@fault("production_stopped", "SIGSTOP of the production model, for longer than each timeout", production=True)
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    world.struck["production_stopped"] += world.production.alive
    world.production.signal(signal.SIGSTOP)
    yield
    await asyncio.sleep(LONG)
    world.production.signal(signal.SIGCONT)


@fault("explorer_stopped", "SIGSTOP of the Explorer, for longer than each timeout")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    world.struck["explorer_stopped"] += world.explorer.alive
    world.explorer.signal(signal.SIGSTOP)
    yield
    await asyncio.sleep(LONG)
    world.explorer.signal(signal.SIGCONT)
