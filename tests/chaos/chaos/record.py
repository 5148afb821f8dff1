"""What the outside saw: each answer's bytes, and everything that the sidecar acknowledged."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from chaos.sent import holds_an_answer

CANARY = "kept-of-a-conversation"
"""What prompts, answers, and all that is said of them have, to be looked for where it must not be read."""

_LONGEST = 100_000
"""Bytes after which an agent gives up an answer: it is one without an end."""


def canary(task: str) -> str:
    """The canary of one task."""
    return f"{CANARY}-of-{task}."


@dataclass(slots=True)
class Answer:
    """One answer of production as an agent got it.

    Attributes:
        prompt: the last message of its request.
        number: its `x-answer`, by which production's log knows it; None where production did not answer.
        whole: its body came to its end.
        left: its agent went away on purpose.
        error: what broke it off.
    """

    prompt: str
    began: float
    number: str | None = None
    status: int | None = None
    body: bytearray = field(default_factory=bytearray)
    whole: bool = False
    left: bool = False
    error: str | None = None
    ended: float = 0.0

    @property
    def refusal(self) -> str | None:
        """The type of an error in OpenAI's format."""
        try:
            return str(json.loads(self.body)["error"]["type"])
        except (ValueError, KeyError, TypeError):
            return None


@dataclass(slots=True)
class Record:
    """Everything that has to be found again.

    Attributes:
        feedback, marks: the ids of what got a 202.
        finished: the ends of runs that got a 200, by (task, run), with the reward.
        broken: runs of which an agent missed an answer, by (task, run): never to be trained on.
        facade: answers whose reward the facade acknowledged, by msg_id.
        erased: what `DELETE /data` answered when nothing of it was pending, by the session's one task; None where it
            was asked for and not acknowledged.
        behind_poison: tasks of good calls behind poisoned ones.
        statuses: of control requests, by path and status.
        elsewhere: requests that were asked again, of another sidecar.
        wrong: what was seen to be wrong at once.
    """

    answers: list[Answer] = field(default_factory=list)
    feedback: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    finished: dict[tuple[str, int], float] = field(default_factory=dict)
    broken: set[tuple[str, int]] = field(default_factory=set)
    facade: dict[str, float] = field(default_factory=dict)
    erased: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    behind_poison: set[str] = field(default_factory=set)
    secrets: set[str] = field(default_factory=set)
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    elsewhere: int = 0
    wrong: list[str] = field(default_factory=list)


class Recording(httpx.AsyncBaseTransport):
    """A transport that writes down each answer of production, byte by byte."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._inner = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        prompt = str(json.loads(request.content)["messages"][-1]["content"])
        answer = Answer(prompt, time.monotonic())
        self._record.answers.append(answer)
        try:
            response = await self._inner.handle_async_request(request)
        except BaseException as error:
            answer.error, answer.ended = repr(error), time.monotonic()
            raise
        answer.number, answer.status = response.headers.get("x-answer"), response.status_code
        assert isinstance(response.stream, httpx.AsyncByteStream)
        return httpx.Response(
            response.status_code, headers=response.headers, stream=_Recorded(response.stream, answer), request=request
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Recorded(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, answer: Answer) -> None:
        self._stream = stream
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._stream:
                self._answer.body += piece
                if len(self._answer.body) > _LONGEST:
                    raise httpx.ReadError("longer than any answer")
                yield piece
            self._answer.whole = True
        except BaseException as error:
            self._answer.left = self._agent_left(error)
            self._answer.error = repr(error)
            raise
        finally:
            self._answer.ended = time.monotonic()

    def _agent_left(self, error: BaseException) -> bool:
        """Return whether the agent left on purpose, when this error ended its reading."""
        if isinstance(error, GeneratorExit) or len(self._answer.body) > _LONGEST:
            return True
        # After the last event SDKs wait a moment for the end of the framing, to use the connection again.
        return isinstance(error, asyncio.CancelledError) and holds_an_answer(bytes(self._answer.body))

    async def aclose(self) -> None:
        if not self._answer.whole and self._answer.error is None:
            self._answer.left, self._answer.ended = True, time.monotonic()
        await self._stream.aclose()
