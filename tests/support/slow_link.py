"""A way to a PostgreSQL on which what is asked arrives late."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

_SOCKET = ".s.PGSQL.5432"


class SlowLink:
    """Passes bytes on between a Unix socket in a folder and that of a server.

    Attributes:
        url: of the store behind it.
        delay: seconds by which each request is late.
    """

    def __init__(self, store_url: str, folder: Path) -> None:
        address, _, self._server = store_url.partition("?host=")
        self.url = f"{address}?host={folder}"
        self.delay = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    async def accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, upstream = await asyncio.open_unix_connection(f"{self._server}/{_SOCKET}")
        tasks = {
            asyncio.create_task(self._pass_on(reader, upstream, late=True)),
            asyncio.create_task(self._pass_on(answers, writer, late=False)),
        }
        self._tasks |= tasks
        await asyncio.wait(tasks)
        self._tasks -= tasks

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, late: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if late and self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def slow_link(store_url: str, folder: Path) -> AsyncIterator[SlowLink]:
    link = SlowLink(store_url, folder)
    server = await asyncio.start_unix_server(link.accepted, folder / _SOCKET)
    try:
        yield link
    finally:
        server.close()
        await link.close()
