"""Chats of the facade's clients: the request to the Explorer, and the answer that is remembered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

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

    async def request(self, body: bytes) -> bytes:
        """Build the Explorer's request from the body of the client; called before each try.

        Raises:
            RequestError: it is not to be asked.
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
        self._asked: dict[str, Any] = {}
        self._plain: bytes | None = None
        self._by_name = False

    @property
    def model_name(self) -> str | None:
        return self._name if self._by_name else None

    async def request(self, body: bytes) -> bytes:
        if self._plain is None:
            long = len(body) > LONG_BODY
            self._asked, plain = await asyncio.to_thread(self._read, body) if long else self._read(body)
            self._plain = plain
            self._by_name = self._asked.get("model") == self._name
        if not self._by_name:
            return self._plain
        self._asked["model"] = await self._explorer.model()
        return json.dumps(self._asked).encode()  # in ASCII: texts hold lone surrogates too

    def _read(self, body: bytes) -> tuple[dict[str, Any], bytes]:
        """The redacted request, as JSON too; what is no JSON the Explorer is to refuse itself.

        Raises:
            RequestError: nobody knows what is to be redacted in it.
        """
        try:
            asked, plain = read_json(body)
        except Unreadable:
            return {}, body
        try:
            redacted, as_json = self._prompts.redact_json(asked, body if plain else None)
        except RedactionFailed as error:
            raise RequestError(str(error), status=422, code="redaction_failed") from error
        return dict(redacted), body if redacted is asked else as_json

    def tried_again(self) -> None:
        self._metrics.facade_retries.inc()

    async def asks_anew(self, status: int) -> bool:
        return status == 404 and self._by_name and await self._explorer.renamed(self._asked.get("model"))

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
