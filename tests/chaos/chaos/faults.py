"""The faults: what each breaks, for a while, and how it is healed.

A fault is a context manager: it breaks something when it is entered and heals it when it is left. It counts itself
(`World.struck`) only where it really happened to something.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import signal
import socket
import sqlite3
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import logged_production
import relay

if TYPE_CHECKING:
    from chaos.explorers import Explorer
    from chaos.processes import Process
    from chaos.world import World

_Break = Callable[["World", random.Random], AbstractAsyncContextManager[None]]
_LONG = 2.5
"""Seconds: longer than every timeout of the sidecar in these schedules."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that can be broken.

    Attributes:
        what: in words, for the table.
        break_: breaks it, and heals it at the end.
        production: answers of production may suffer meanwhile. Else none may.
        store, explorer: the kind it needs, if any.
        longest: seconds that it lasts, at most.
    """

    name: str
    what: str
    break_: _Break
    production: bool = False
    store: str | None = None
    explorer: str | None = None
    longest: float = _LONG


FAULTS: dict[str, Fault] = {}


def _fault(
    name: str,
    what: str,
    *,
    production: bool = False,
    store: str | None = None,
    explorer: str | None = None,
    longest: float = _LONG,
) -> Callable[[Callable[[World, random.Random], AsyncIterator[None]]], None]:
    def add(function: Callable[[World, random.Random], AsyncIterator[None]]) -> None:
        FAULTS[name] = Fault(name, what, asynccontextmanager(function), production, store, explorer, longest)

    return add


# Processes


@asynccontextmanager
async def _dead(part: Process | Explorer, kill: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    part.held += 1
    try:
        await kill()
        yield
    finally:
        part.held -= 1


@_fault("sidecar_killed", "kill -9 of a sidecar with all its processes", production=True)
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    sidecar = rng.choice(world.sidecars)
    world.struck["sidecar_killed"] += sidecar.alive
    async with _dead(sidecar, sidecar.kill):
        yield


@_fault("parent_killed", "kill -9 of a sidecar's parent process alone", production=True)
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    sidecar = rng.choice(world.sidecars)
    world.struck["parent_killed"] += sidecar.alive
    async with _dead(sidecar, partial(sidecar.kill, all_of_it=False)):
        yield


@_fault("training_killed", "kill -9 of a sidecar's training side", longest=0.5)
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    if (pid := rng.choice(world.sidecars).children().get("training")) is not None:
        os.kill(pid, signal.SIGKILL)
        world.struck["training_killed"] += 1
    yield


@_fault("worker_killed", "kill -9 of a worker of the proxy", production=True, longest=0.5)
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    children = rng.choice(world.sidecars).children()
    workers = sorted(name for name in children if name.startswith("proxy"))
    if workers:
        os.kill(children[rng.choice(workers)], signal.SIGKILL)
        world.struck["worker_killed"] += 1
    yield


@_fault("production_killed", "kill -9 of the production model", production=True)
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    world.struck["production_killed"] += world.production.alive
    async with _dead(world.production, world.production.kill):
        yield


@_fault("explorer_killed", "kill -9 of the Explorer")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    world.struck["explorer_killed"] += world.explorer.alive
    async with _dead(world.explorer, world.explorer.kill):
        yield


@_fault("sidecar_stopped", "SIGSTOP of a sidecar, for longer than each timeout", production=True)
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    sidecar = rng.choice(world.sidecars)
    world.struck["sidecar_stopped"] += sidecar.alive
    sidecar.signal(signal.SIGSTOP)
    yield
    await asyncio.sleep(_LONG)
    sidecar.signal(signal.SIGCONT)


@_fault("training_stopped", "SIGSTOP of a sidecar's training side, for longer than each timeout")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    pid = rng.choice(world.sidecars).children().get("training")
    if pid is None:
        yield
        return
    os.kill(pid, signal.SIGSTOP)
    world.struck["training_stopped"] += 1
    yield
    await asyncio.sleep(_LONG)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@_fault("production_stopped", "SIGSTOP of the production model, for longer than each timeout", production=True)
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    world.struck["production_stopped"] += world.production.alive
    world.production.signal(signal.SIGSTOP)
    yield
    await asyncio.sleep(_LONG)
    world.production.signal(signal.SIGCONT)


@_fault("explorer_stopped", "SIGSTOP of the Explorer, for longer than each timeout")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    world.struck["explorer_stopped"] += world.explorer.alive
    world.explorer.signal(signal.SIGSTOP)
    yield
    await asyncio.sleep(_LONG)
    world.explorer.signal(signal.SIGCONT)


# The network, and what the other end says


def _on_a_link(link: str, way: str, what: str) -> None:
    name = f"{link}_link_{way}"

    @_fault(name, f"between sidecar and {link}: {what}", production=link == "production")
    async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
        between = world.to_production if link == "production" else world.to_explorer
        before = between.struck[way]
        # a head has some 150 bytes, so that this is before it, in it, or amid a body
        between.break_(way, rng.choice((0, 40, 250, 400, 700)))
        yield
        between.heal()
        world.struck[name] += between.struck[way] - before


for _way, _what in relay.WAYS.items():
    _on_a_link("explorer", _way, _what)
    if _way in ("refused", "black_hole", "reset", "truncated", "slow"):  # the rest would alter what production said
        _on_a_link("production", _way, _what)


def _of_production(way: str, what: str) -> None:
    name = f"production_{way}"

    @_fault(name, f"the production model: {what}", production=True)
    async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
        before = world.misbehaved(way)
        world.orders.write_text(way)
        yield
        world.orders.unlink(missing_ok=True)
        world.struck[name] += world.misbehaved(way) - before


for _way, _what in logged_production.WAYS.items():
    _of_production(_way, _what)


@_fault("dns_fails", "production's name has no address", production=True)
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    if world.sandbox is None:
        world.impossible["dns_fails"] += 1
        yield
        return
    world.sandbox.resolve(False)
    world.to_production.drop()  # what is open needs no name
    world.struck["dns_fails"] += 1
    yield
    world.sandbox.resolve(True)


# The store


@_fault("disk_full", "not a byte is left on the store's disk", store="sqlite")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    if world.sandbox is None:
        world.impossible["disk_full"] += 1
        yield
        return
    await asyncio.to_thread(world.sandbox.fill)
    world.struck["disk_full"] += 1
    yield
    world.sandbox.clear()


@_fault("store_read_only", "the training side dies and finds its store read-only", store="sqlite")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    if world.sandbox is None:
        world.impossible["store_read_only"] += 1
        yield
        return
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


@_fault("store_file_limit", "the store's files may not grow (RLIMIT_FSIZE)", store="sqlite")
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


@_fault("store_locked", "another process holds SQLite's write lock", store="sqlite")
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


@_fault("postgres_killed", "kill -9 of PostgreSQL, which is away for a while", store="postgresql")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    assert world.postgres is not None
    world.postgres.kill()
    world.struck["postgres_killed"] += 1
    yield
    await world.postgres.start()


@_fault("postgres_restarted", "PostgreSQL is restarted", store="postgresql", longest=0.5)
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    assert world.postgres is not None
    await world.postgres.start()  # where another fault has it dead
    await world.postgres.restart()
    world.struck["postgres_restarted"] += 1
    yield


@_fault("postgres_stopped", "SIGSTOP of PostgreSQL", store="postgresql")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    assert world.postgres is not None
    world.postgres.signal(signal.SIGSTOP)
    world.struck["postgres_stopped"] += 1
    yield
    world.postgres.signal(signal.SIGCONT)


# The clock


def _clock(name: str, what: str, seconds: int) -> None:
    @_fault(name, what)
    async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
        if world.clock is None:
            world.impossible[name] += 1
            yield
            return
        world.clock.write_text(f"{rng.randint(1, 30) * seconds:+d}")
        world.struck[name] += 1
        yield
        world.clock.write_text("+0")


_clock("clock_forward", "the sidecars' clock is set forward, up to half an hour, and back", 60)
_clock("clock_back", "the sidecars' clock is set back, up to half an hour, and forward", -60)


# Clients


@_fault("slow_loris", "fifty clients that send a request byte by byte and never end it")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-length: 100000\r\n\r\n" + b"{" * 1000
    ports = [int(url.rpartition(":")[2]) for url in world.urls]

    async def dawdle() -> None:
        writer = None
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", rng.choice(ports))
            world.struck["slow_loris"] += 1
            begun = rng.randrange(len(head) - 200)
            writer.write(head[:begun])
            for byte in head[begun:]:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.1)
        if writer is not None:
            writer.close()

    clients = [asyncio.create_task(dawdle()) for _ in range(50)]
    yield
    for client in clients:
        client.cancel()
    await asyncio.wait(clients)


@_fault("clients_gone", "clients that reset their connections amid a stream")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    ports = [int(url.rpartition(":")[2]) for url in world.urls]

    async def leave(number: int) -> None:
        body = b'{"stream": true, "messages": [{"role": "user", "content": "gone %d"}]}' % number
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\nx-pace: 20x0.2\r\ncontent-type: application/json\r\n"
        writer = None
        with contextlib.suppress(OSError, TimeoutError):
            reader, writer = await asyncio.open_connection("127.0.0.1", rng.choice(ports))
            writer.write(head + b"content-length: %d\r\n\r\n%b" % (len(body), body))
            async with asyncio.timeout(2):
                await reader.readuntil(b"\r\n\r\n")
                await reader.read(1)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            world.struck["clients_gone"] += 1
        if writer is not None:
            writer.transport.abort()

    clients = [asyncio.create_task(leave(number)) for number in range(10)]
    yield
    for client in clients:
        client.cancel()
    await asyncio.wait(clients)
