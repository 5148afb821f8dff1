"""Async HTTP clients that several event loops may use: connections belong to the loop that made them.

An agent's client is made once and used by production's loop. When the agent runs again on another loop, a connection
of the one would be taken from the pool by the other, and both would fail, production too.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator
from typing import Any


@functools.cache
def per_loop(kind: type[Any]) -> type[Any]:
    """The class of clients (`httpx.AsyncClient`, httpx2's, or one made of them) with connections of its own per loop.

    A client hands each request that it has built to another one of the same options, of which each loop has one. That
    one is closed with its loop, where `asyncio.run` or the like ends it, or with the client. `transport`, and what
    `mounts` holds, are functions that make a transport, because its connections are of one loop.

    Raises:
        ValueError: of the class, with a transport in place of a function.
    """

    class PerLoop(kind):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**_with_transports(options))
            self._options = options
            self._clients: dict[asyncio.AbstractEventLoop, tuple[Any, AsyncGenerator[None, None]]] = {}

        async def send(self, request: Any, **options: Any) -> Any:
            loop = _running()
            if self.is_closed or loop is None:
                return await super().send(request, **options)
            client, _ = self._clients.get(loop) or await self._begin(loop)
            response = await client.send(request, **options)
            self.cookies.extract_cookies(response)  # this one builds the next request
            return response

        async def _begin(self, loop: asyncio.AbstractEventLoop) -> tuple[Any, AsyncGenerator[None, None]]:
            for ended in [other for other in list(self._clients) if other.is_closed()]:
                self._clients.pop(ended, None)  # a program may have a loop for each of its requests
            client = kind(**_with_transports(self._options))
            client.event_hooks = self.event_hooks
            lease = _open_until_the_loop_ends(client)
            await anext(lease)
            begun = self._clients[loop] = client, lease
            return begun

        async def aclose(self) -> None:
            await self._close_here()
            await super().aclose()

        async def __aexit__(self, *details: Any) -> None:
            await self._close_here()
            await super().__aexit__(*details)

        async def _close_here(self) -> None:
            _, lease = self._clients.pop(_running(), (None, None))
            if lease is not None:
                await lease.aclose()

    PerLoop.__name__ = PerLoop.__qualname__ = kind.__name__
    return PerLoop


def _with_transports(options: dict[str, Any]) -> dict[str, Any]:
    made = dict(options)
    if options.get("transport") is not None:
        made["transport"] = _made("transport", options["transport"])
    if options.get("mounts"):
        made["mounts"] = {
            pattern: None if make is None else _made(f"mounts[{pattern!r}]", make)
            for pattern, make in options["mounts"].items()
        }
    return made


def _made(name: str, make: Any) -> Any:
    if callable(make):
        return make()
    raise ValueError(
        f"{name}: expected a function that makes a transport, such as `lambda: httpx.AsyncHTTPTransport(retries=2)`: "
        f"several event loops may use the client, and each needs its own; found a {type(make).__name__}"
    )


async def _open_until_the_loop_ends(client: Any) -> AsyncGenerator[None, None]:
    """A loop closes its async generators before it ends, and those that nobody holds: with this one, a client."""
    try:
        yield
    finally:
        await client.aclose()


def _running() -> Any:
    """The running loop; None where there is none, or trio's, whose connections are left to the client itself."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
