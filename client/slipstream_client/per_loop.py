"""Async HTTP clients that several event loops may use: connections belong to the loop that made them.

An agent's client is made once and used by production's loop. When the agent runs again on another loop, a connection
of the one would be taken from the pool by the other, and both would fail, production too.
"""

from __future__ import annotations

import asyncio
import functools
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

_open: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakSet[Any]] = WeakKeyDictionary()
"""The clients that each loop has connections of."""


@functools.cache
def per_loop(kind: type[Any]) -> type[Any]:
    """The class of clients (`httpx.AsyncClient`, httpx2's, or one made of them) with connections of its own per loop.

    A client hands each request that it has built to another one of the same options, of which each loop has one.
    """

    class PerLoop(kind):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self._options = options
            self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()

        async def send(self, request: Any, **options: Any) -> Any:
            loop = _running()
            if self.is_closed or loop is None:
                return await super().send(request, **options)
            client = self._clients.get(loop)
            if client is None:
                client = self._clients[loop] = kind(**self._options)
                client.event_hooks = self.event_hooks
                _open.setdefault(loop, WeakSet()).add(client)
            response = await client.send(request, **options)
            self.cookies.extract_cookies(response)  # this one builds the next request
            return response

        async def aclose(self) -> None:
            await self._close_here()
            await super().aclose()

        async def __aexit__(self, *details: Any) -> None:
            await self._close_here()
            await super().__aexit__(*details)

        async def _close_here(self) -> None:
            client = self._clients.pop(_running(), None)
            if client is not None:
                await client.aclose()

        def __del__(self) -> None:
            loop = _running()
            client = self.__dict__.get("_clients", {}).get(loop) if loop is not None else None
            if client is not None and not client.is_closed:
                loop.create_task(client.aclose())

    PerLoop.__name__ = PerLoop.__qualname__ = kind.__name__
    return PerLoop


async def close_here() -> None:
    """Close the connections of the running loop, before it ends."""
    for client in list(_open.pop(asyncio.get_running_loop(), ())):
        with suppress(Exception):  # they end with the loop in any case
            await client.aclose()


def _running() -> Any:
    """The running loop; None where there is none, or trio's, whose connections are left to the client itself."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
