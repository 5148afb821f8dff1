"""Chats of the facade's clients: the request to the Explorer, and the answer that is remembered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from slipstream.dialects.body import Unreadable, read_json
from slipstream.errors import RequestError
from slipstream.explorer.client import ExplorerClient
from slipstream.facade.answers import Answer
from slipstream.http.headers import Headers
from slipstream.metrics import Metrics
from slipstream.redaction.redactor import Redactor
from slipstream.redaction.rules import RedactionFailed
from slipstream.store import facade
from slipstream.store.database import Database

LONG_BODY = 64 * 1024
"""Bytes. A shorter request is read and written in less time than a thread takes to be woken."""

_Read = TypeVar("_Read")


async def aside(read: Callable[[bytes], _Read], body: bytes) -> _Read:
    """Read a body: a long one in a thread, as the control API shares this event loop."""
    return await asyncio.to_thread(read, body) if len(body) > LONG_BODY else read(body)


def under_name(request: bytes, model: str) -> bytes:
    """A request as JSON, which has no `model`, with this one."""
    rest = request[1:]
    return b'{"model":' + json.dumps(model).encode() + (rest if rest == b"}" else b"," + rest)


@dataclass(frozen=True, slots=True)
class Whole:
    """An answer that is here in full."""

    status: int
    headers: Headers
    body: bytes


class Chat(Protocol):
    """One chat completion that passes."""

    @property
    def model_name(self) -> str | None:
        """The policy's name in the answer that goes back, once `request` was called; None leaves the Explorer's."""
        ...

    @property
    def presenting(self) -> int:
        """Return the bytes of memory that `presented` takes beside the answer, once `read` was called."""
        ...

    async def read(self, body: bytes) -> None:
        """Read the body of the client, once. Its values are not kept: the Explorer may take minutes, and there is no
        memory for those of all requests meanwhile.

        Raises:
            RequestError: it is not to be asked.
        """
        ...

    async def request(self) -> bytes:
        """Build the Explorer's request; called before each try.

        Raises:
            ExplorerUnavailable: it cannot be asked now.
        """
        ...

    def tried_again(self) -> None:
        """The Explorer was busy, away or failed, and is asked again."""
        ...

    async def asks_anew(self, status: int) -> bool:
        """The Explorer refused it. Returns whether `request` has something else to ask now."""
        ...

    async def refused(self, answer: Whole) -> None:
        """The Explorer's last word is no answer; it is passed on once this returns."""
        ...

    async def answered(self, answer: Answer, version: int | None) -> None:
        """The answer has come to its end, under this policy version; that end is passed on once this returns.

        Raises:
            RequestError: it is not to be passed on.
        """
        ...

    async def broken_off(self, answer: Answer) -> None:
        """A stream did not come to its end, or nobody was left to read it."""
        ...

    def presented(self, answer: Whole) -> Whole:
        """A whole answer of the Explorer as it goes back, under the policy's name, or what it said instead of one."""
        ...


def json_of(body: bytes) -> tuple[Any, bool]:
    """The value of a request's body, as `read_json` gives it.

    Raises:
        RequestError: 400, it cannot be read.
    """
    try:
        return read_json(body)
    except Unreadable as error:
        text = f"the body: expected a JSON object ({error.reason})"
        raise RequestError(text, status=400, code="invalid_json") from error


def error_message(said: Any) -> str:
    """The message of an error of the Explorer, by its JSON value."""
    error = said.get("error", said) if isinstance(said, dict) else None
    text = error.get("message") or error.get("detail") if isinstance(error, dict) else error
    return text if isinstance(text, str) else "the Explorer refused it"


class FacadeChat:
    """A chat of one of Trinity's own clients: asked as it is, and remembered for the feedback that will name it.

    Args:
        prompts: what redacts it before the Explorer gets it.
        name: under which the policy may be asked for, beside the Explorer's own name for it.
    """

    def __init__(
        self,
        database: Database,
        explorer: ExplorerClient,
        metrics: Metrics,
        prompts: Redactor,
        name: str,
        clock: Callable[[], float],
        tenant: str,
    ) -> None:
        self._database = database
        self._explorer = explorer
        self._metrics = metrics
        self._prompts = prompts
        self._name = name
        self._clock = clock
        self._tenant = tenant
        self._plain = b""
        self._nameless: bytes | None = None
        """The request without its model, where that is asked for by name."""
        self._model: str | None = None

    @property
    def model_name(self) -> str | None:
        return None if self._nameless is None else self._name

    @property
    def presenting(self) -> int:
        return 0

    async def read(self, body: bytes) -> None:
        self._plain, self._nameless = await aside(self._read, body)

    async def request(self) -> bytes:
        if self._nameless is None:
            return self._plain
        self._model = await self._explorer.model()
        return under_name(self._nameless, self._model)

    def _read(self, body: bytes) -> tuple[bytes, bytes | None]:
        """The redacted request as JSON, and again without its model where it asks for the policy by name; what is no
        JSON the Explorer is to refuse itself.

        Raises:
            RequestError: nobody knows what is to be redacted in it.
        """
        try:
            asked, plain = read_json(body)
        except Unreadable:
            return body, None
        try:
            redacted, as_json = self._prompts.redact_json(asked, body if plain else None)
        except RedactionFailed as error:
            raise RequestError(str(error), status=422, code="redaction_failed") from error
        if redacted.get("model") != self._name:
            return body if redacted is asked else as_json, None
        rest = {field: value for field, value in redacted.items() if field != "model"}
        return b"", json.dumps(rest).encode()  # in ASCII: texts hold lone surrogates too

    def tried_again(self) -> None:
        self._metrics.facade_retries.inc()

    async def asks_anew(self, status: int) -> bool:
        return status == 404 and self._nameless is not None and await self._explorer.renamed(self._model)

    async def refused(self, answer: Whole) -> None:
        """Nothing was recorded of it."""

    async def answered(self, answer: Answer, version: int | None) -> None:
        self._metrics.facade_answers.labels("not_whole" if answer.flaw else "whole").inc()
        if answer.msg_id is None:
            return  # nobody can name it
        new = facade.NewAnswer(answer.msg_id, self._tenant, answer.choices, answer.flaw, version)
        async with self._database.write() as session:
            await facade.add_answer(session, new, self._clock())

    async def broken_off(self, answer: Answer) -> None:
        await self.answered(answer, None)

    def presented(self, answer: Whole) -> Whole:
        return answer
