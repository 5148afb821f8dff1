"""The agent's side of one exchange: its request body, and the news that it has gone away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from types import TracebackType

from starlette.types import Receive


class CallerGone(Exception):
    """The agent closed its connection before it had the whole answer."""


class Caller:
    """Reads the request and watches for the caller's leaving, which uvicorn tells to nobody who does not `receive`.

    Use it as an async context manager: when the caller goes, whatever its body waits for is cancelled and
    `CallerGone` comes out.

    Args:
        receive: the ASGI callable.
        observe: gets each piece of the request body, if given.

    Attributes:
        body: the request body: bytes when it came with the head, as a chat completion's mostly does, else an iterator.
        received_at: `time.perf_counter()` when the request's last byte was here; 0.0 before.
    """

    def __init__(self, receive: Receive, observe: Callable[[bytes], None] | None) -> None:
        self._receive = receive
        self._observe = observe
        self._gone = False
        self.body: bytes | AsyncIterator[bytes] = b""
        self.received_at = 0.0

    async def __aenter__(self) -> Caller:
        piece, more = await self._next_piece()
        rest: asyncio.Queue[bytes | None] | None = asyncio.Queue(1) if more else None
        self.body = piece if rest is None else _pieces(piece, rest)
        task = asyncio.current_task()
        assert task is not None  # for the type checker: a coroutine runs in a task
        self._exchange = task
        self._cancelling = task.cancelling()
        self._watch = asyncio.create_task(self._listen(rest))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.cancel()
        if self._gone and self._exchange.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise CallerGone from error

    async def _next_piece(self) -> tuple[bytes, bool]:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise CallerGone
        piece, more = message.get("body", b""), message.get("more_body", False)
        if self._observe is not None:
            self._observe(piece)
        if not more:
            self.received_at = time.perf_counter()
        return piece, more

    async def _listen(self, rest: asyncio.Queue[bytes | None] | None) -> None:
        try:
            while rest is not None:
                piece, more = await self._next_piece()
                await rest.put(piece)
                if not more:
                    await rest.put(None)
                    break
            await self._receive()  # after the body there is nothing to come but the disconnect
        except CallerGone:
            pass
        self._gone = True
        self._exchange.cancel()


async def _pieces(piece: bytes | None, rest: asyncio.Queue[bytes | None]) -> AsyncIterator[bytes]:
    while piece is not None:
        if piece:  # an empty one would end a chunked body
            yield piece
        piece = await rest.get()
