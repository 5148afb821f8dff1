"""The Explorer's HTTP, as `trinity-contract.md` says it is."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.capture.body import Unreadable, header_value, parse_json
from slipstream.capture.completion import flaw_of, msg_id_of
from slipstream.errors import AnswerLost, ExplorerAway, ExplorerError, ExplorerRefused, ExplorerUnavailable
from slipstream.facade.client import ExplorerHttp, Response
from slipstream.proxy.errors import UpstreamError

_KNOWN_FIELDS = (
    "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "max_tokens",
    "max_completion_tokens", "stop", "temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias",
    "seed", "reasoning_effort", "chat_template_kwargs",
)  # fmt: skip
"""What of a captured request the policy's engine (vLLM's chat completions) understands. The rest is production's own
(`metadata`, `user`, `service_tier`, ...) and would be refused or leak."""

_SHORT = 30.0
"""Seconds for the Explorer's light calls: they touch memory and one small table."""

_LONGEST_ANSWER = 16 * 1024**2
"""Bytes. Far more than a completion with the ids and logprobs of all its tokens; more is no answer, and would take the
memory that production's traffic needs."""

_LONG_ANSWER = 256 * 1024
"""Bytes. A longer one is parsed in a thread: it takes milliseconds, and the control API shares this event loop."""

_UNHANDLED = "Internal Server Error"
"""What Trinity's server says where its own code raised; an engine's 500 comes through with the engine's words."""

_LARGEST_COUNTER = 2**31 - 1
"""What the store's columns hold."""


@dataclass(frozen=True, slots=True)
class ExplorerCounters:
    """The Explorer's counters. They belong to its process: one that went back tells of a restart.

    Attributes:
        ready: experiences given a reward so far.
        total: experiences recorded so far.
        step: commits carried out so far.
        version: the policy version that every engine has reached, or None where it is not told.
        newest: the version that the first engine has reached, or None.
    """

    ready: int
    total: int
    step: int
    version: int | None
    newest: int | None

    def restarted_since(self, ready: int, total: int, step: int) -> bool:
        """Whether the process that had these counters is gone."""
        return self.ready < ready or self.total < total or self.step < step


class ExplorerClient:
    """Calls the Explorer. Never sends it a caller's headers: it has no use for them, and they hold secrets.

    Args:
        base_url: such as `http://127.0.0.1:8010`.
        model: the policy's model name; None asks the Explorer, once and again when it no longer knows that name.
        chat_timeout: seconds for one chat completion, to the answer's last byte.
        connect_timeout, commit_timeout: seconds.

    Every method raises `ExplorerUnavailable` where another try may help, and `ExplorerRefused` where it will not.
    """

    def __init__(
        self,
        base_url: str,
        *,
        model: str | None,
        chat_timeout: float,
        connect_timeout: float,
        commit_timeout: float,
    ) -> None:
        self._model = self._configured_model = model
        self._chat_timeout = chat_timeout
        self._commit_timeout = commit_timeout
        # A call as a whole has one limit, in `_call`; this one of the connection's must not come before it.
        self._http = ExplorerHttp(
            base_url, connect_timeout=connect_timeout, timeout=max(_SHORT, chat_timeout, commit_timeout)
        )

    def close(self) -> None:
        """Close the kept connections."""
        self._http.close()

    async def model(self) -> str:
        """The policy's model name.

        Raises:
            ExplorerAway: it cannot be had now, which is no run's fault: each can be sent once the list is there.
        """
        if self._model is None:
            try:
                models = (await self._call("GET", "/v1/models", _SHORT)).get("data")
            except ExplorerError as error:
                raise ExplorerAway(str(error), status=error.status, said=error.said) from error
            first = models[0] if isinstance(models, list) and models else None
            if not isinstance(first, dict) or not isinstance(first.get("id"), str):
                raise ExplorerAway("the Explorer's /v1/models names no model")
            self._model = first["id"]
        return self._model

    async def renamed(self, asked: str | None) -> bool:
        """Whether the Explorer's list of models has another name by now than a request was made with.

        Raises:
            ExplorerAway: it cannot be had now.
        """
        if self._configured_model is not None:
            return False
        if self._model == asked:  # else another request has found out already
            self._model = None
        return await self.model() != asked

    async def request_for(self, captured: Mapping[str, Any]) -> dict[str, Any]:
        """The request that repeats a captured one on the policy: one whole answer, under the policy's name."""
        return {**_kept(captured, _KNOWN_FIELDS), "model": await self.model(), "n": 1, "stream": False}

    async def request_of(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The request that an agent itself makes of the policy: as many answers as it wants, streamed or not."""
        return {**_kept(asked, (*_KNOWN_FIELDS, "n", "stream", "stream_options")), "model": await self.model()}

    async def chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for one chat completion and check that it is one: an id, and one choice with a message.

        Raises:
            ExplorerAway: nobody was there to answer. Trinity's only engine is away for each reload, and chats get 500.
            AnswerLost: the Explorer could not record the answer (Trinity says 500 to an empty completion), or it is not
                whole.
        """
        before = await self._handed_on()  # only a count from before can tell, so it is asked for each chat
        try:
            answer = await self._call("POST", "/v1/chat/completions", self._chat_timeout, request)
        except ExplorerRefused as error:
            if error.status == 404 and self._configured_model is None:  # it serves another model since a restart
                self._model = None
                raise ExplorerUnavailable(str(error), status=error.status, said=error.said) from error
            raise
        except ExplorerUnavailable as error:
            if error.status != 500:
                raise
            if before is not None and await self._handed_on() == before:
                raise ExplorerAway(f"{error}, without an engine", status=error.status, said=error.said) from error
            if error.said == _UNHANDLED:
                raise AnswerLost(str(error), status=error.status, said=error.said) from error
            raise
        choices = answer.get("choices")
        if msg_id_of(answer) is None:
            raise ExplorerRefused("the Explorer's answer has no id")
        if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
            raise ExplorerRefused("the Explorer's answer has not exactly one choice")
        if not isinstance(choices[0].get("message"), dict):
            raise ExplorerRefused("the Explorer's answer has no message")
        if (flaw := flaw_of(choices)) is not None:
            raise AnswerLost(f"the engine broke its answer off: {flaw}")
        return answer

    async def feedback(
        self, *, msg_id: str, reward: float, task_id: str, run_id: int, allowed: Callable[[], None]
    ) -> None:
        """Hand over one reward. One at a time: Trinity's table races on concurrent duplicates.

        Args:
            allowed: called right before it is sent; what it raises keeps it from being sent.

        Raises:
            ValueError: the reward is not finite. Trinity would take it and train on it.
        """
        if not math.isfinite(reward):
            raise ValueError(f"reward {reward} of {msg_id} is not finite")
        body = {"msg_ids": [msg_id], "reward": reward, "task_id": task_id, "run_id": run_id}
        await self._call("POST", "/feedback", _SHORT, body, allowed)

    async def commit(self, *, allowed: Callable[[], None]) -> None:
        """Hand the rewarded experiences to the Trainer; `allowed` as in `feedback`."""
        await self._call("POST", "/commit", self._commit_timeout, {}, allowed)

    async def counters(self) -> ExplorerCounters:
        body = await self._call("GET", "/metrics", _SHORT)
        try:
            versions = [_counter(body, name) for name in body if name.endswith("/model_version")]
            return ExplorerCounters(
                ready=_counter(body, "rollout/ready_experience_count"),
                total=_counter(body, "rollout/total_experience_count"),
                step=_counter(body, "explore_step_num"),
                version=min(versions, default=None),
                newest=max(versions, default=None),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ExplorerUnavailable(f"the Explorer's /metrics lacks a counter: {error!r}") from error

    async def _handed_on(self) -> int | None:
        """How many chats an engine was given so far, or None where the Explorer does not tell.

        Raises:
            ExplorerAway: it does not answer this either.
        """
        try:
            body = await self._call("GET", "/metrics", _SHORT)
            counts = [_counter(body, name) for name in body if name.endswith("/total_request_count")]
        except ExplorerUnavailable as error:
            raise ExplorerAway(str(error), status=error.status, said=error.said) from error
        except (ExplorerRefused, TypeError, ValueError, OverflowError):
            return None
        return sum(counts) if counts else None

    async def _call(
        self,
        method: str,
        path: str,
        seconds: float,
        body: Mapping[str, Any] | None = None,
        allowed: Callable[[], None] | None = None,
    ) -> dict[str, Any]:
        content = b"" if body is None else json.dumps(body).encode()  # in ASCII: texts hold lone surrogates too
        about = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))] if content else []
        try:
            async with asyncio.timeout(seconds):
                response = await self._http.send(method.encode(), path.encode(), about, content, allowed=allowed)
                try:
                    answered = await _body(response)
                finally:
                    response.close()
        except TimeoutError as error:
            raise ExplorerUnavailable(f"{method} {path}: no whole answer within {seconds:g} s") from error
        except UpstreamError as error:
            raise ExplorerUnavailable(f"{method} {path}: {error}") from error
        status, what = response.status, f"{method} {path}: {response.status}"
        said = answered[:500].decode("utf-8", "replace")
        if status == 429 or status >= 500:
            # A server closes the connection behind a 500 of its own: what came next on it would be lost.
            self._http.close()
            raise ExplorerUnavailable(what, status=status, said=said, retry_after=_retry_after(response))
        if status >= 300:
            raise ExplorerRefused(what, status=status, said=said)
        try:
            long = len(answered) > _LONG_ANSWER
            parsed = await asyncio.to_thread(parse_json, answered) if long else parse_json(answered)
        except Unreadable as error:
            raise ExplorerUnavailable(f"{method} {path}: the answer is not JSON") from error
        if not isinstance(parsed, dict):
            raise ExplorerUnavailable(f"{method} {path}: the answer is not a JSON object")
        return parsed


def _kept(request: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    return {name: request[name] for name in fields if request.get(name) is not None}


async def _body(response: Response) -> bytes:
    body = bytearray()
    while not response.at_end:
        body += await response.read()
        if len(body) > _LONGEST_ANSWER:
            raise ExplorerUnavailable(f"the Explorer's answer is longer than {_LONGEST_ANSWER} bytes")
    return bytes(body)


def _counter(body: Mapping[str, Any], name: str) -> int:
    value = int(body[name])
    if abs(value) > _LARGEST_COUNTER:
        raise ValueError(f"{name} is {value}")
    return value


def _retry_after(response: Response) -> float | None:
    try:
        return max(0.0, float(header_value(response.headers, b"retry-after")))
    except ValueError:
        return None
