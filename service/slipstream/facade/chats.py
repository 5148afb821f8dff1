"""Chats with the policy that others make: to the Explorer and back, tried again while it reloads, and remembered before
they end. Whose they are, and so what is asked and remembered, is said by a `Chat`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import structlog
from starlette.types import Message, Receive, Send
from tenacity import AsyncRetrying, retry_if_exception_type, stop_before_delay, wait_random_exponential

from slipstream.dialects.body import header_value
from slipstream.dialects.chat_stream import MAX_VALUES_OF_CHUNKS
from slipstream.errors import ExplorerUnavailable, RequestError, SlipstreamError
from slipstream.explorer.http import ExplorerHttp, Response
from slipstream.explorer.watch import ExplorerWatch
from slipstream.facade.answers import Answer, describe, memory_of_answer, read_answer, read_piece
from slipstream.facade.caller import Caller, CallerGone
from slipstream.facade.chat import Chat, Whole
from slipstream.facade.naming import RenamedStream, renamed
from slipstream.http.errors import UpstreamError
from slipstream.http.headers import Headers
from slipstream.memory.parsing import PATIENCE, ParseMemory, Share, memory_of
from slipstream.proxy.tap import BodyCopy, Room
from slipstream.settings.sidecar import Explorer, Facade
from slipstream.tracing.catalogue import Attribute
from slipstream.tracing.tracer import Tracer

_log = structlog.get_logger(__name__)

_COPIES = 3
"""Copies of a request's values: redaction makes one for the Explorer and one for the store."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
"""Seconds between tries, at random up to a bound that doubles: a reload of some seconds costs little more."""

_DONE = re.compile(rb"[\r\n]data: ?\[DONE\]")
_DONE_LENGTH = 13
"""Pattern of the end of a stream, and its length in bytes. Within an event a line break is written `\\n`."""

_ROOM = 4
"""Times `facade.max_body` that the pieces of an answer may take of memory: those of a stream are short."""

_PASSED_ON = frozenset({b"content-type", b"content-encoding", b"retry-after", b"cache-control"})
"""Headers of the Explorer that belong to the answer. The others belong to its server."""


class _TryAgain(SlipstreamError):
    """The Explorer was busy or failed: it may answer later. Holds what it said, for when that was the last try."""

    def __init__(self, answer: Whole) -> None:
        super().__init__(f"the Explorer answered {answer.status}")
        self.answer = answer


class Chats:
    """Passes chat completions on, `facade.concurrency` at a time.

    It is built on the proxy's own connections, because a streamed answer of the Explorer comes in an event a token.
    Nothing of the caller's headers goes on: they hold secrets, and Trinity
    would forward them to the engine.

    Args:
        watch: knows the policy version that is served.
        parsing: the memory for requests and answers while they are read.
        tracer: whose current span is that of the chat.
    """

    def __init__(
        self, explorer: Explorer, settings: Facade, watch: ExplorerWatch, parsing: ParseMemory, tracer: Tracer
    ) -> None:
        self._settings = settings
        self._watch = watch
        self._parsing = parsing
        self._tracer = tracer
        self._room = asyncio.Semaphore(settings.concurrency)
        self._reading = asyncio.Lock()
        self._explorer = ExplorerHttp(
            explorer.base_url, connect_timeout=explorer.connect_timeout, timeout=settings.timeout, tls=explorer.tls
        )

    def close(self) -> None:
        self._explorer.close()

    async def get(self, path: str, seconds: float) -> Whole:
        """Return the Explorer's answer to a GET, unchanged.

        Raises:
            RequestError: 503, there is no answer within that time.
        """
        try:
            async with asyncio.timeout(seconds):
                response = await self._explorer.send(b"GET", path.encode(), [], b"")
                try:
                    return await self._whole(response)
                finally:
                    response.close()
        except (UpstreamError, TimeoutError) as error:
            raise _away(str(error) or f"no answer within {seconds:g} s", 503) from error

    async def answer(self, chat: Chat, receive: Receive, send: Send) -> None:
        """Carry one chat completion, with ASGI's callables, so that pieces pass as they arrive.

        Raises:
            RequestError: there is no answer; nothing was sent.
            SQLAlchemyError: it could not be remembered; the end of the answer is not sent.
        """
        copy = BodyCopy(self._settings.max_body, Room(_ROOM * self._settings.max_body))
        streaming = False

        async def send_in_time(message: Message) -> None:
            try:
                async with asyncio.timeout(self._settings.timeout):
                    await send(message)
            except TimeoutError:
                raise CallerGone from None  # who does not read keeps others waiting

        try:
            async with Caller(receive, None) as caller, self._room:
                await self._read_request(chat, await self._request(caller))
                version = self._watch.version
                self._tracer.current().set({Attribute.VERSION: version})
                answered = await self._ask(chat)
                if isinstance(answered, Whole):
                    await self._pass_whole(chat, answered, version, send_in_time)
                    return
                streaming = True
                try:
                    await self._pass_stream(chat, answered, copy, version, send_in_time)
                finally:
                    answered.close()
        except CallerGone:
            self._tracer.current().fail("caller_gone")
            if streaming:
                await self._broken_off(chat, copy, "caller_gone")
        except UpstreamError as error:
            # The answer has started: without its end, the server breaks the connection off.
            _log.warning("facade_answer_cut", cause=error.cause)
            self._tracer.current().fail(error.cause)
            await self._broken_off(chat, copy, "truncated")

    async def _request(self, caller: Caller) -> bytes:
        if isinstance(caller.body, bytes):
            request = caller.body
        else:
            request = await self._pieces(caller.body)
        if len(request) > self._settings.max_body:
            raise RequestError(
                f"the body: expected at most {self._settings.max_body} bytes (facade.max_body)",
                status=413,
                code="too_large",
            )
        if not request.lstrip().startswith(b"{"):  # Trinity says 500 to what is JSON and no object, as while it reloads
            raise RequestError("the body: expected a JSON object", status=400, code="invalid_json")
        return request

    async def _pieces(self, body: AsyncIterator[bytes]) -> bytes:
        pieces = bytearray()
        try:
            async with asyncio.timeout(self._settings.timeout):
                async for piece in body:
                    pieces += piece
                    if len(pieces) > self._settings.max_body:
                        break
        except TimeoutError as error:
            text = f"the body: expected all of it within {self._settings.timeout:g} s (facade.timeout)"
            raise RequestError(text, status=408, code="too_slow") from error
        return bytes(pieces)

    async def _read_request(self, chat: Chat, body: bytes) -> None:
        size = memory_of(body, copies=_COPIES)
        async with self._parsing.held(size, Share.CHAT, patience=PATIENCE):
            await chat.read(body)

    async def _ask(self, chat: Chat) -> Whole | Response:
        """The Explorer's answer: in full, or with its head alone where it is a stream."""
        retrying = AsyncRetrying(
            retry=retry_if_exception_type((_TryAgain, UpstreamError, ExplorerUnavailable)),
            stop=stop_before_delay(self._settings.retry_for),
            wait=wait_random_exponential(_FIRST_PAUSE, _LONGEST_PAUSE),
            before_sleep=lambda _: chat.tried_again(),
            reraise=True,
        )
        try:
            return await retrying(self._ask_once, chat)
        except _TryAgain as error:
            return error.answer
        except UpstreamError as error:
            raise _away(str(error), 504 if error.timed_out else 502) from error
        except ExplorerUnavailable as error:
            raise _away(str(error), 502) from error

    async def _ask_once(self, chat: Chat) -> Whole | Response:
        request = await chat.request()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(request))]
        response = await self._explorer.send(b"POST", b"/v1/chat/completions", headers, request)
        if response.status == 200 and header_value(response.headers, b"content-type").lower().startswith(
            b"text/event-stream"
        ):
            return response
        try:
            whole = await self._whole(response)
        finally:
            response.close()
        if whole.status == 429 or whole.status >= 500:
            raise _TryAgain(whole)
        if whole.status >= 400 and await chat.asks_anew(whole.status):
            raise _TryAgain(whole)
        return whole

    async def _whole(self, response: Response) -> Whole:
        copy = BodyCopy(self._settings.max_body, Room(_ROOM * self._settings.max_body))
        while not response.at_end:
            copy.add([await response.read()])
        body = copy.whole()
        if body is None:
            raise _away(f"its answer is longer than {self._settings.max_body} bytes (facade.max_body)", 502)
        return Whole(response.status, _passed_on(response.headers), body)

    async def _pass_whole(self, chat: Chat, answered: Whole, version: int | None, send: Send) -> None:
        if answered.status != 200:
            self._tracer.current().fail(str(answered.status))
            await chat.refused(answered)
            presented = chat.presented(answered)
        else:
            async with self._read(answered.body, answered.headers, streamed=False, also=chat.presenting) as answer:
                await chat.answered(answer, version)
                if chat.model_name is not None:
                    answered = replace(answered, body=renamed(answered.body, chat.model_name))
                presented = chat.presented(answered)
        await send_whole(presented, send)

    async def _pass_stream(
        self, chat: Chat, response: Response, copy: BodyCopy, version: int | None, send: Send
    ) -> None:
        """Pass pieces on as they arrive; what says that the answer is over, once it is remembered."""
        headers = _passed_on(response.headers)
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        tail, held = b"", list[bytes]()
        names = RenamedStream(chat.model_name)
        while not response.at_end:
            piece = await response.read()
            copy.add([piece])
            piece = names.feed(piece)
            if not held:
                seen = tail + piece
                done = _DONE.search(seen)
                before = len(piece) if done is None else max(0, done.start() - len(tail))
                await send({"type": "http.response.body", "body": piece[:before], "more_body": True})
                tail, piece = seen[-_DONE_LENGTH:], piece[before:]
            if piece:
                held.append(piece)
        held.append(names.rest())
        body = copy.whole()
        try:
            if body is None:
                await chat.answered(Answer(None, 0, "too_large"), version)
            else:
                async with self._read(body, headers, streamed=True) as answer:
                    await chat.answered(answer, version)
        except RequestError as error:
            _log.warning("chat_cut", reason=str(error))
            self._tracer.current().fail(error.code)
            return  # it has started, so nothing but its missing end can tell
        await send({"type": "http.response.body", "body": b"".join(held)})

    @asynccontextmanager
    async def _read(self, body: bytes, headers: Headers, *, streamed: bool, also: int = 0) -> AsyncIterator[Answer]:
        """Read an answer in a thread, one after the other, as the control API shares the interpreter with them. It is
        in memory that is reserved for it, with what it takes `also`, until the block ends."""
        limit = self._settings.max_body
        size = await asyncio.to_thread(memory_of_answer, body, headers, limit, streamed=streamed)
        async with self._parsing.held(size + also, Share.CHAT):
            async with self._reading:
                answer = await asyncio.to_thread(read_answer, body, headers, limit, streamed=streamed)
            describe(answer, self._tracer.current())
            yield answer

    async def _broken_off(self, chat: Chat, copy: BodyCopy, flaw: str) -> None:
        body = copy.whole() or b""
        async with self._parsing.held(memory_of(body, most=MAX_VALUES_OF_CHUNKS), Share.CHAT):
            piece = await asyncio.to_thread(read_piece, body, flaw)
        await chat.broken_off(piece)


async def send_whole(answer: Whole, send: Send) -> None:
    """Send an answer that is here in full."""
    headers = [*answer.headers, (b"content-length", b"%d" % len(answer.body))]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def _passed_on(headers: Headers) -> Headers:
    return [(name, value) for name, value in headers if name in _PASSED_ON]


def _away(why: str, status: int) -> RequestError:
    return RequestError(f"the Explorer: {why}", status=status, code="explorer_unavailable")
