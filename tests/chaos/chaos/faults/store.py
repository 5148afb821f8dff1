"""Stores that take no writes, or are away."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import signal
import sqlite3
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from chaos.faults.fault import fault

if TYPE_CHECKING:
    from chaos.world import World


@fault("disk_full", "not a byte is left on the store's disk", needs="sqlite")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    if world.sandbox is None:
        world.impossible["disk_full"] += 1
        yield
        return
    async with world.sandbox.turn:
        await asyncio.to_thread(world.sandbox.fill)
        world.struck["disk_full"] += 1
        yield
        world.sandbox.clear()


@fault("store_read_only", "the training side dies and finds its store read-only", needs="sqlite")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    if world.sandbox is None:
        world.impossible["store_read_only"] += 1
        yield
        return
    async with world.sandbox.turn:
        done = False
        for _ in range(50):  # it can be made so only while nobody has a file of it open for writing
            if (pid := world.sidecars[0].children().get("training")) is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if done := world.sandbox.read_only(True):
                break
            await asyncio.sleep(0.01)
        world.struck["store_read_only"] += done
        yield
        world.sandbox.read_only(False)


@fault("store_file_limit", "the store's files may not grow (RLIMIT_FSIZE)", needs="sqlite")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    pid = world.sidecars[0].children().get("training")
    if pid is None:
        yield
        return
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (world.store_file.stat().st_size, hard))
    world.struck["store_file_limit"] += 1
    yield
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))


@fault("store_locked", "another process holds SQLite's write lock", needs="sqlite")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    database = sqlite3.connect(world.store_file, isolation_level=None, timeout=0.2)
    with contextlib.suppress(sqlite3.Error):
        for _ in range(20):
            with contextlib.suppress(sqlite3.OperationalError):  # busy just now
                database.execute("BEGIN IMMEDIATE")
                world.struck["store_locked"] += 1
                break
            await asyncio.sleep(0.01)
    yield
    database.close()


@fault("postgres_killed", "kill -9 of PostgreSQL, which is away for a while", needs="postgresql")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    assert world.postgres is not None
    await world.postgres.kill()
    world.struck["postgres_killed"] += 1
    yield
    await world.postgres.start()


@fault("postgres_restarted", "PostgreSQL is restarted", needs="postgresql", longest=0.5)
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    assert world.postgres is not None
    await world.postgres.restart()
    world.struck["postgres_restarted"] += 1
    yield


@fault("postgres_stopped", "SIGSTOP of PostgreSQL", needs="postgresql")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    assert world.postgres is not None
    world.postgres.signal(signal.SIGSTOP)
    world.struck["postgres_stopped"] += 1
    yield
    world.postgres.signal(signal.SIGCONT)
