"""One chat completion of an agent that is run again: asked under the policy's name, and kept with its run."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from slipstream.dialects.body import Unreadable, read_json
from slipstream.dialects.chat import is_conversation
from slipstream.errors import RequestError
from slipstream.explorer.client import ExplorerClient
from slipstream.facade.answers import Answer
from slipstream.facade.chat import LONG_BODY, Whole
from slipstream.redaction.redactor import Redactor
from slipstream.redaction.rules import RedactionFailed
from slipstream.runs.budget import tokens_of
from slipstream.store.bodies import pack
from slipstream.store.replays import NewCall


class ReplayChat:
    """A `facade.chats.Chat` of a run.

    Args:
        redactor: of what is stored.
        prompts: what redacts a request before the Explorer gets it.
        model_name: the policy's, for the agent.
        began: when the call came, Unix seconds.
        keep: keeps a whole answer with the run, unless the run has ended.
        give_up: the call, and with it the run, came to nothing, for this reason.
        tried_again: called for each further try.
    """

    def __init__(
        self,
        explorer: ExplorerClient,
        redactor: Redactor,
        prompts: Redactor,
        began: float,
        *,
        model_name: str,
        keep: Callable[[NewCall], Awaitable[None]],
        give_up: Callable[[str], Awaitable[None]],
        tried_again: Callable[[], None],
    ) -> None:
        self._explorer = explorer
        self._redactor = redactor
        self._prompts = prompts
        self.model_name: str | None = model_name
        self._keep = keep
        self._give_up = give_up
        self._began = began
        self._started = time.monotonic()
        self._asked: dict[str, Any] | None = None
        self.tried_again = tried_again

    async def request(self, body: bytes) -> bytes:
        if self._asked is None:
            self._asked = await asyncio.to_thread(self._read, body) if len(body) > LONG_BODY else self._read(body)
        self._asked = await self._explorer.request_of(self._asked)
        return json.dumps(self._asked).encode()  # in ASCII: texts hold lone surrogates too

    async def asks_anew(self, status: int) -> bool:
        asked = (self._asked or {}).get("model")
        return status == 404 and await self._explorer.renamed(asked)  # it serves another model since a restart

    async def refused(self, answer: Whole) -> None:
        said = answer.body[:500].decode("utf-8", "replace")
        await self._give_up(f"a call failed: the Explorer answered {answer.status} {said}")

    async def answered(self, answer: Answer, version: int | None) -> None:
        if answer.flaw is not None or answer.msg_id is None or answer.completion is None:
            await self._give_up(f"an answer was not whole: {answer.flaw}")
            raise RequestError(
                f"the answer is not whole ({answer.flaw}): the run failed", status=410, code="run_closed"
            )
        latency = time.monotonic() - self._started
        try:
            request, completion = await asyncio.to_thread(self._packed, self._asked or {}, answer.completion)
        except RedactionFailed as error:
            await self._give_up(str(error))
            raise RequestError(f"{error}: the run failed", status=410, code="run_closed") from error
        tokens = tokens_of(answer.completion)
        call = NewCall(answer.msg_id, answer.choices, request, completion, latency, version, self._began, tokens)
        await self._keep(call)

    async def broken_off(self, answer: Answer) -> None:
        await self._give_up(f"an answer was not whole: {answer.flaw}")

    def presented(self, answer: Whole) -> Whole:
        return answer

    def _packed(self, request: Mapping[str, Any], answer: Mapping[str, Any]) -> tuple[bytes, bytes]:
        redacted = self._redactor.redact(request, strict=True)
        answer = self._redactor.redact_answer(answer, prompt_redacted=redacted is not request)
        return pack(redacted), pack(answer)

    def _read(self, body: bytes) -> dict[str, Any]:
        try:
            asked, plain = read_json(body)
        except Unreadable as error:
            raise RequestError(
                f"the body: expected a JSON object ({error.reason})", status=400, code="invalid_json"
            ) from error
        if not isinstance(asked, dict) or not is_conversation(asked.get("messages")):
            raise RequestError("messages: expected a list of at least one message", param="messages")
        try:
            redacted: dict[str, Any] = self._prompts.redact_json(asked, body if plain else None)[0]
        except RedactionFailed as error:
            raise RequestError(str(error), status=422, code="redaction_failed") from error
        return redacted
