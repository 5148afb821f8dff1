"""A sidecar with keys, before a production model that writes down every byte of each request's head."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import get_args

from loops import Loop
from starlette.types import ASGIApp, Receive, Scope, Send

from slipstream.access.settings import Role

ROLES = get_args(Role)


@dataclass
class Kept:
    """What production was sent."""

    heads: list[list[tuple[bytes, bytes]]] = field(default_factory=list)
    targets: list[bytes] = field(default_factory=list)

    def values(self, name: bytes) -> list[bytes]:
        """Of the last request."""
        return [value for key, value in self.heads[-1] if key == name]

    def wrap(self, app: ASGIApp) -> ASGIApp:
        async def kept(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                self.heads.append(list(scope["headers"]))
                self.targets.append(scope["raw_path"] + b"?" + scope["query_string"])
            await app(scope, receive, send)

        return kept


@dataclass
class Guarded:
    """A sidecar that asks for keys: one of each role, by the role's name."""

    loop: Loop
    keys: dict[str, str]
    production: Kept

    def key(self, role: str) -> dict[str, str]:
        return {"x-slipstream-key": self.keys[role]}


async def answer_to(url: str, request: bytes) -> bytes:
    """All that comes back for these bytes on a connection of their own, which they have to ask to be closed."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()


RunGuarded = Callable[..., AbstractAsyncContextManager[Guarded]]
