"""The parts of a schedule, as processes with relays between them, and what keeps them running."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib.util
import json
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml
from ports import free_port
from relay import Relay
from serving import until

from chaos import explorers, sandbox
from chaos.explorers import SUPPORT, Explorer
from chaos.faults.clock import CLOCK_IS_READ
from chaos.log_pipe import LogPipe
from chaos.postgres import Postgres
from chaos.processes import Process
from chaos.record import Record
from chaos.sandbox import Sandbox
from chaos.schedule import Schedule
from chaos.settings import sidecar_settings

_STARTS = 120
"""Seconds for everything to serve: the embedded Explorer and the real Trinity import a lot."""
_STANDSTILL = 0.8
"""Seconds in which the harness itself did not get to run: nearly production's shortest timeout."""


class World:
    """Everything that a schedule has.

    Attributes:
        orders: the file that tells production how to misbehave.
        clock: the file that sets the sidecars' clock; None where this world's clock is the machine's.
        harmful: from when until when production's answers may suffer.
        struck: by fault, how often it really happened to something.
        timeline: what happened when, in seconds since the start.
        headers: what every request to a sidecar carries: its key, where it asks for one.
        secrets: what the sidecars' configuration takes from the environment.
        links: between the sidecars and the explorer, production, and the endpoint of agents where there is one.
    """

    def __init__(self, schedule: Schedule, folder: Path) -> None:
        self.schedule = schedule
        self.folder = folder
        self.record = Record()
        self.sandbox = Sandbox(folder) if sandbox.inside() else None
        self.orders = folder / "orders"
        self.production_log = folder / "production.log"
        self.clock = folder / "clock" if schedule.has("clock_forward", "clock_back") and faketime() else None
        self.harmful: list[tuple[float, float]] = []
        self.struck: Counter[str] = Counter()
        self.impossible: Counter[str] = Counter()
        self.timeline: list[tuple[float, str]] = []
        self.ending = asyncio.Event()
        self.headers: dict[str, str] = {}
        if schedule.keys:
            key = f"slp_{random.Random(schedule.seed).getrandbits(256):064x}"
            self.record.secrets.add(key)
            self.headers["x-slipstream-key"] = key
        self.secrets: dict[str, str] = {}
        if schedule.encrypted:
            self.secrets["STORE_ENCRYPTION_KEY"] = self._random_key("store")
        if schedule.webhook:
            self.secrets["WEBHOOK_SECRET"] = f"whsec_{self._random_key('webhook')}"
        self.record.secrets.update(self.secrets.values())
        self.sidecars: list[Process] = []
        self.urls: list[str] = []
        self.postgres: Postgres | None = None
        self._began = time.monotonic()
        self.production: Process
        self.explorer: Explorer
        self.endpoint: Process | None = None
        self.endpoint_journal = folder / "endpoint.journal"
        self.links: dict[str, Relay] = {}
        self.store_url = ""

    def _random_key(self, name: str) -> str:
        return base64.b64encode(random.Random(f"{self.schedule.seed} {name}").randbytes(32)).decode()

    @property
    def store_folder(self) -> Path:
        return self.sandbox.store if self.sandbox else self.folder

    @property
    def store_file(self) -> Path:
        return self.store_folder / "slipstream.db"

    def note(self, what: str) -> None:
        self.timeline.append((time.monotonic() - self._began, what))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start all of it, keep it running, and end it: the sidecars last, in order, so that they deliver the rest."""
        schedule, rng = self.schedule, random.Random(self.schedule.seed)
        async with contextlib.AsyncExitStack() as stack:
            port = free_port()
            self.production = Process(
                (
                    sys.executable,
                    str(SUPPORT / "logged_production.py"),
                    str(port),
                    str(self.production_log),
                    str(self.orders),
                ),
                _accepts(port),
                self.folder / "production.err",
            )
            self.explorer = await stack.enter_async_context(explorers.explorer(schedule.explorer, self.folder, rng))
            ports = {"production": port, "explorer": self.explorer.port}
            if schedule.webhook:
                ports["endpoint"] = free_port()
                self.endpoint = self._endpoint(ports["endpoint"])
            self.links = {name: Relay(port, rng) for name, port in ports.items()}
            relays = {name: await stack.enter_async_context(link.running()) for name, link in self.links.items()}
            if schedule.store == "postgresql":
                self.postgres = await asyncio.to_thread(Postgres)
                stack.callback(self.postgres.close)
                self.store_url = self.postgres.url
            else:
                self.store_url = f"sqlite+aiosqlite:///{self.store_file}"
            for number in range(schedule.sidecars):
                log = LogPipe(self.folder / f"sidecar-{number}.log")
                stack.callback(log.close)
                self._add_sidecar(number, relays, log)
            parts = self._parts()
            stack.push_async_callback(self._end, parts)
            for part in parts.values():
                await part.start()
            try:
                await until(self.serves, _STARTS)
            except TimeoutError:
                raise AssertionError(f"it does not serve after {_STARTS} s: {self.last_words()}") from None
            self.note("everything serves")
            keepers = [asyncio.create_task(self._keep(parts)), asyncio.create_task(self._watch_the_machine())]
            try:
                yield
            finally:
                for keeper in keepers:
                    keeper.cancel()
                await asyncio.wait(keepers)

    def last_words(self) -> str:
        """The ends of the logs."""
        return "; ".join(f"{log.name}: {log.read_text()[-400:]!r}" for log in self.folder.glob("*[!n].log"))

    def _parts(self) -> dict[str, Process | Explorer]:
        sidecars = {f"sidecar {number}": one for number, one in enumerate(self.sidecars)}
        others = {"endpoint": self.endpoint} if self.endpoint else {}
        return {"production": self.production, "explorer": self.explorer, **others, **sidecars}

    def misbehaved(self, way: str) -> int:
        """How many requests production answered in that way."""
        return self.production_log.read_text().count(json.dumps({"way": way})) if self.production_log.exists() else 0

    async def serves(self) -> bool:
        """Whether each part answers: the sidecars' control API too."""
        urls = [f"http://127.0.0.1:{self.explorer.port}/health", *(f"{url}/readyz" for url in self.urls)]
        serve = [explorers.answers(url) for url in urls] + ([self.endpoint.ready] if self.endpoint else [])
        return all([await one() for one in serve])

    async def _keep(self, parts: dict[str, Process | Explorer]) -> None:
        """Start again what has ended, as an orchestrator does."""
        while True:
            for name, part in parts.items():
                if not part.alive and not part.held:
                    self.note(f"{name} is started again")
                    with contextlib.suppress(AssertionError, TimeoutError):  # killed once more
                        await part.start()
            await asyncio.sleep(0.1)

    async def _watch_the_machine(self) -> None:
        """A machine that stands still longer than the timeouts, which are short here, fails answers as a fault does."""
        while True:
            looked = time.monotonic()
            await asyncio.sleep(0.1)
            if (now := time.monotonic()) - looked > _STANDSTILL:
                self.harmful.append((looked, now))
                self.note(f"the machine stood still for {now - looked:.1f} s")

    async def _end(self, parts: dict[str, Process | Explorer]) -> None:
        for part in parts.values():
            if part.alive:
                await part.kill()

    def _endpoint(self, port: int) -> Process:
        secret = f"chaos-{random.Random(f'{self.schedule.seed} endpoint').getrandbits(96):024x}"
        self.record.secrets.add(secret)
        knows = {"WEBHOOK_SECRET": self.secrets["WEBHOOK_SECRET"], "AGENT_KEY": secret}
        knows["SIDECAR_KEY"] = self.headers.get("x-slipstream-key", "")
        command = (sys.executable, "-m", "chaos.endpoint", str(port), str(self.endpoint_journal))
        return Process(command, _accepts(port), self.folder / "endpoint.log", knows)

    def _add_sidecar(self, number: int, relays: Mapping[str, int], log: LogPipe) -> None:
        """Args:
        relays: the ports of its links, by their other ends.
        """
        port, config = free_port(), self.folder / f"sidecar-{number}.yaml"
        host = sandbox.HOST if self.sandbox else "127.0.0.1"
        settings = sidecar_settings(self.schedule, port, self.store_url, host, relays, self.headers)
        if self.schedule.repairs and self.explorer.history is not None:
            settings["explorer"]["history_url"] = f"sqlite+aiosqlite:///{self.explorer.history}"
        config.write_text(yaml.safe_dump(settings))
        environment = dict(self.secrets)
        if self.clock is not None:
            self.clock.write_text("+0")
            environment |= {
                "LD_PRELOAD": str(faketime()),
                "FAKETIME_TIMESTAMP_FILE": str(self.clock),
                "FAKETIME_CACHE_DURATION": str(CLOCK_IS_READ),
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # a clock that is set is not the one that only goes on
                "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # with it, threads that wait for each other spin
                "FAKETIME_DISABLE_SHM": "1",
                "NO_FAKE_STAT": "1",
            }
        url = f"http://127.0.0.1:{port}"
        self.urls.append(url)
        self.sidecars.append(
            Process(
                (sys.executable, "-m", "chaos.sidecar", "serve", "--config", str(config)),
                explorers.answers(f"{url}/readyz"),
                log,
                environment,
            )
        )

    async def status(self, number: int) -> dict[str, Any]:
        async with httpx.AsyncClient(timeout=3, headers=self.headers) as client:
            status: dict[str, Any] = (await client.get(f"{self.urls[number]}/status")).json()
            return status


def faketime() -> Path | None:
    """The library that sets a program's clock, where it is installed."""
    found = importlib.util.find_spec("libfaketime")
    if found is None or found.origin is None:
        return None
    library = Path(found.origin).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"
    return library if library.exists() else None


def _accepts(port: int) -> Any:
    async def accepted() -> bool:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return True
        return False

    return accepted
