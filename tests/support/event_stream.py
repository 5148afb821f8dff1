"""A reader of `GET /events`: an event is its name and its data, a comment has no name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass
class Reader:
    """One open stream.

    Attributes:
        response: its head.
    """

    response: httpx.Response
    _events: AsyncIterator[tuple[str, Any]]

    async def next(self) -> tuple[str, Any]:
        """The next event."""
        async with asyncio.timeout(15):
            return await anext(self._events)

    async def first(self) -> dict[str, Any]:
        """The whole state that a stream begins with."""
        return dict([await self.next() for _ in range(3)])

    async def until(self, name: str, wanted: Any) -> Any:
        """The data of the first event of this name for which a condition holds."""
        while True:
            found, data = await self.next()
            if found == name and wanted(data):
                return data

    async def rest(self, seconds: float = 15.0) -> list[str]:
        """The names of what comes until the end, which has to come within this time."""
        async with asyncio.timeout(seconds):
            return [name async for name, _ in self._events]


@asynccontextmanager
async def reading(
    client: httpx.AsyncClient, path: str = "/events", headers: dict[str, str] | None = None
) -> AsyncIterator[Reader]:
    async with client.stream("GET", path, headers=headers or {}) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Reader(response, parsed(response.aiter_lines()))


async def parsed(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, Any]]:
    name = ""
    async for line in lines:
        field, _, value = line.partition(":")
        if field == "event":
            name = value.strip()
        elif field == "data":
            yield name, json.loads(value)
        elif line.startswith(":"):
            yield "", None
