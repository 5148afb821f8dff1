"""A chat with the policy in another dialect than the Explorer's."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from slipstream.dialects.body import Unreadable, parse_json
from slipstream.dialects.form import Held, Translator, Unsayable
from slipstream.dialects.responses.references import answer_of, references, resolved
from slipstream.errors import RequestError
from slipstream.facade.answers import Answer
from slipstream.facade.chat import Chat, Whole, aside, error_message, json_of
from slipstream.jsontext import to_json
from slipstream.memory.parsing import memory_of


class Before(NamedTuple):
    """A conversation with the policy up to one of its answers.

    Attributes:
        held: all of it, the answer included.
        completion: that answer.
    """

    held: Held
    completion: Mapping[str, Any]


Earlier = Callable[[str], Awaitable[Before | None]]
"""Finds a conversation by the id of the answer; None where it is not known."""


async def unknown(name: str) -> None:
    """An `Earlier` for whom no answer is known."""


_COPIES = 2
"""Copies of values: the answer in the other dialect has some of its request."""

_WHY = {
    "media": "it holds an image, sound or a file, and the policy reads text",
    "provider_tool": "it uses a tool that only the provider of a model runs",
    "history_unseen": "it goes on from an answer that is not known here",
    "unsayable": "chat completions, which the policy answers, have no word for it",
}


def refusal_of(error: Unsayable) -> RequestError:
    """The answer to an agent whose request the policy cannot be asked."""
    text = f"{error.at}: the policy cannot be asked this ({error.problem}): {_WHY[error.problem]}"
    return RequestError(text, param=error.at, code=error.problem)


class TranslatedChat:
    """A `Chat` around the one that asks and remembers, which sees chat completions alone.

    The Explorer is asked for a whole answer, also where the agent asked for a stream; the events of the stream are then
    made from it. No user watches a replay, so the later first event costs nothing.

    Args:
        earlier: knows what was said before a request that goes on from an answer.

    Attributes:
        instructed: the first message of the chat is instructions, which hold for this one call. Known once `read`
            was called.
    """

    def __init__(self, inner: Chat, translator: Translator, earlier: Earlier) -> None:
        self._inner = inner
        self._translator = translator
        self._earlier = earlier
        self._body = b"{}"
        """The request: its values are not kept while the Explorer answers."""
        self.instructed = False

    @property
    def model_name(self) -> str | None:
        return self._inner.model_name

    @property
    def presenting(self) -> int:
        return self._inner.presenting + memory_of(self._body, copies=_COPIES)

    async def read(self, body: bytes) -> None:
        asked = await aside(_read, body)
        self._body = body
        self.instructed = bool(asked.get("instructions"))
        name = self._translator.history(asked)
        before = None if name is None else await self._earlier(name)
        said = None if before is None else before.held
        whole = resolved(asked, {item: found for item in references(asked) if (found := await self._item(item))})
        await self._inner.read(await aside(lambda _: self._translated(whole, said), body))

    async def request(self) -> bytes:
        return await self._inner.request()

    def tried_again(self) -> None:
        self._inner.tried_again()

    async def asks_anew(self, status: int) -> bool:
        return await self._inner.asks_anew(status)

    async def refused(self, answer: Whole) -> None:
        await self._inner.refused(answer)

    async def answered(self, answer: Answer, version: int | None) -> None:
        await self._inner.answered(answer, version)

    async def broken_off(self, answer: Answer) -> None:
        await self._inner.broken_off(answer)

    def presented(self, answer: Whole) -> Whole:
        try:
            said = parse_json(answer.body)
        except Unreadable:
            said = None
        kind = b"application/json"
        if answer.status != 200 or not isinstance(said, dict):
            body = to_json(self._translator.error(answer.status, error_message(said), None, None))
        else:
            asked = _read(self._body)
            given = self._translator.answer(said, asked)
            if asked.get("stream") is True:
                kind, body = b"text/event-stream", b"".join(self._translator.stream(given))
            else:
                body = to_json(given)
        about = [field for field in answer.headers if field[0] not in (b"content-type", b"content-encoding")]
        return replace(answer, headers=[(b"content-type", kind), *about], body=body)

    async def _item(self, name: str) -> Mapping[str, Any] | None:
        """An item of one of the policy's answers; None where it is not known."""
        before = await self._earlier(answer_of(name))
        output = [] if before is None else self._translator.answer(before.completion, {})["output"]
        return next((item for item in output if item["id"] == name), None)

    def _translated(self, asked: Mapping[str, Any], before: Held | None) -> bytes:
        if not self._translator.is_request(asked):
            raise RequestError(
                "the body: expected a request with the messages of a conversation", code="invalid_request"
            )
        try:
            chat = self._translator.chat_request(asked, before)
        except Unsayable as error:
            raise refusal_of(error) from error
        return json.dumps(chat).encode()  # in ASCII: texts hold lone surrogates too


def _read(body: bytes) -> dict[str, Any]:
    asked, _ = json_of(body)
    if not isinstance(asked, dict):
        raise RequestError("the body: expected a JSON object", status=400, code="invalid_json")
    return asked
