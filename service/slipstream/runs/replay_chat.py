"""One chat completion of an agent that is run again: asked under the policy's name, and kept with its run."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from slipstream import usage
from slipstream.dialects.chat import is_conversation
from slipstream.dialects.elements import Split, split
from slipstream.dialects.form import Dialect, Unsayable
from slipstream.dialects.translators import TRANSLATORS
from slipstream.errors import RequestError
from slipstream.explorer.client import ExplorerClient, agent_request
from slipstream.facade.answers import Answer
from slipstream.facade.chat import Whole, aside, json_of, under_name
from slipstream.facade.translated import refusal_of
from slipstream.jsontext import to_json
from slipstream.redaction.redactor import Redactor
from slipstream.redaction.rules import RedactionFailed
from slipstream.runs.budget import tokens_of
from slipstream.runs.replay_histories import AsAsked
from slipstream.store.bodies import pack
from slipstream.store.replay_calls import NewCall


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request without its model, as JSON.

    Attributes:
        content: for the Explorer.
        stored: redacted, for the store.
        redacted: the two differ.
    """

    content: bytes
    stored: bytes
    redacted: bool


class ReplayChat:
    """A `facade.chats.Chat` of a run.

    Args:
        redactor: of what is stored.
        prompts: what redacts a request before the Explorer gets it.
        model_name: the policy's, for the agent.
        began: when the call came, Unix seconds.
        keep: keeps a whole answer with the run, unless the run has ended; with the call as it was, where that is not
            what is stored, though the policy is asked it so.
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
        keep: Callable[[NewCall, AsAsked | None], Awaitable[None]],
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
        self._asked: _Asked | None = None
        self._model = ""
        self.tried_again = tried_again
        self.presenting = 0

    async def read(self, body: bytes) -> None:
        self._asked = await aside(self._read, body)

    async def request(self) -> bytes:
        assert self._asked is not None, "it was read"
        self._model = await self._explorer.model()
        return under_name(self._asked.content, self._model)

    async def asks_anew(self, status: int) -> bool:
        return status == 404 and await self._explorer.renamed(self._model)  # it serves another model since a restart

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
            text, parts, completion, as_asked = await asyncio.to_thread(self._stored, answer.completion)
        except RedactionFailed as error:
            await self._give_up(str(error))
            raise RequestError(f"{error}: the run failed", status=410, code="run_closed") from error
        tokens = tokens_of(answer.completion)
        call = NewCall(answer.msg_id, answer.choices, text, parts, completion, latency, version, self._began, tokens)
        call = replace(call, usage=usage.tokens_of(answer.completion))
        await self._keep(call, as_asked)

    async def broken_off(self, answer: Answer) -> None:
        await self._give_up(f"an answer was not whole: {answer.flaw}")

    def presented(self, answer: Whole) -> Whole:
        return answer

    def _stored(self, answer: Mapping[str, Any]) -> tuple[bytes, Split | None, bytes, AsAsked | None]:
        """The request's text, by its messages too, and the answer, packed; and both as they were, where the policy is
        asked them so and they differ."""
        assert self._asked is not None, "it was asked"
        redacted = self._redactor.redact_answer(answer, prompt_redacted=self._asked.redacted)
        text = under_name(self._asked.stored, self._model)
        differs = self._prompts is not self._redactor and (self._asked.redacted or redacted != answer)
        as_asked = AsAsked(self._asked.content, to_json(answer)) if differs else None
        return text, split(text, "messages"), pack(redacted), as_asked

    def _read(self, body: bytes) -> _Asked:
        asked, plain = json_of(body)
        if not isinstance(asked, dict) or not is_conversation(asked.get("messages")):
            raise RequestError("messages: expected a list of at least one message", param="messages")
        try:
            TRANSLATORS[Dialect.CHAT].chat_request(asked)
        except Unsayable as error:
            raise refusal_of(error) from error
        try:
            request = agent_request(self._prompts.redact_json(asked, body if plain else None)[0])
        except RedactionFailed as error:
            raise RequestError(str(error), status=422, code="redaction_failed") from error
        try:
            stored = self._redactor.redact(request, strict=True)
        except RedactionFailed as error:
            raise RequestError(f"{error}: the run failed", status=410, code="run_closed") from error
        # in ASCII: texts hold lone surrogates too
        return _Asked(json.dumps(request).encode(), to_json(stored), stored is not request)
