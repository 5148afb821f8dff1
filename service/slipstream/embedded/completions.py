"""One chat completion: the request as OpenAI and vLLM write it, the policy's choices, the answer's JSON.

`temperature`, `response_format`, `tool_choice: required` and penalties are accepted and have no effect: the
distribution that is sampled from is the one that training assumes.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Literal

import numpy as np
import structlog
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from transformers import PreTrainedTokenizerBase

from slipstream.dialects.hermes import TOOL_CALL
from slipstream.embedded.chat import RESERVED, Message, Tool, ToolCall, parse_tool_calls
from slipstream.embedded.engines.engine import Engine, EngineError, Sampled, Sampling
from slipstream.embedded.experiences import Answer
from slipstream.embedded.response_text import ResponseText
from slipstream.embedded.thoughts import Piece, Thoughts, begun_by, parted

log = structlog.get_logger(__name__)

_MAX_CHOICES = 64  # one request fills the engine's rows at most once


def _as_list(stop: Any) -> Any:
    """OpenAI lets one string stand for a list of one."""
    return [stop] if isinstance(stop, str) else stop


def _without_reserved(variables: dict[str, Any] | None) -> dict[str, Any] | None:
    if taken := sorted(RESERVED & (variables or {}).keys()):
        raise ValueError(f"a request cannot set {taken[0]!r} here")
    return variables


class StreamOptions(BaseModel):
    include_usage: bool | None = None


class NamedFunction(BaseModel):
    name: str


class NamedTool(BaseModel):
    type: Literal["function"]
    function: NamedFunction


class ChatRequest(BaseModel):
    """Fields of a chat request that the Explorer reads; others are ignored. Null is the same as absent."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1)]
    tools: list[Tool] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedTool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=_MAX_CHOICES)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: Annotated[list[Annotated[str, Field(min_length=1)]] | None, BeforeValidator(_as_list)] = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: int | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    return_token_ids: bool | None = None
    chat_template_kwargs: Annotated[dict[str, Any] | None, AfterValidator(_without_reserved)] = None

    @property
    def wanted_tools(self) -> list[Tool]:
        """The tools that the model is shown."""
        if self.tool_choice == "none":
            return []
        if isinstance(self.tool_choice, NamedTool):
            return [tool for tool in self.tools or [] if tool.function.name == self.tool_choice.function.name]
        return self.tools or []


class Choice:
    """One of the answers to a request, while it is sampled and afterwards.

    Args:
        thinks: thoughts are told apart from the answer, as `reasoning_content`.
    """

    def __init__(self, index: int, request: ChatRequest, tokenizer: PreTrainedTokenizerBase, thinks: bool) -> None:
        self.index = index
        self.finish_reason: str | None = None
        self.model_version = 0
        self.sampled: list[Sampled] = []
        self.content: str | None = None
        self.reasoning_content: str | None = None
        self.tool_calls: list[ToolCall] = []
        self._request = request
        self._tokenizer = tokenizer
        self._thinks = thinks
        self._text = ResponseText(tokenizer, request.stop or [], tools=bool(request.wanted_tools))

    async def run(
        self, engine: Engine, prompt: Sequence[int], sampling: Sampling
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Samples the answer; yields its entries in a stream's `choices`, the last one with a `finish_reason`.

        Raises:
            EngineError: the model failed.
        """
        yield self._entry({"role": "assistant", "content": ""}, [])
        unsent: list[Sampled] = []
        shown = ""
        begun = self._thinks and begun_by(prompt, self._tokenizer)
        thoughts = Thoughts(begun) if self._thinks else None
        async with aclosing(engine.generate(prompt, sampling)) as steps:
            async for step in steps:
                self.sampled.append(step.sampled)
                unsent.append(step.sampled)
                shown = self._text.add(step.sampled.token_id)
                self.model_version = step.model_version
                self.finish_reason = "stop" if self._text.stopped else step.finish_reason
                if self.finish_reason is not None:
                    break
                if delta := _delta(thoughts.add(shown) if thoughts else Piece("", shown)):
                    yield self._entry(delta, unsent)
                    unsent = []
        rest = shown + self._text.rest()
        piece = thoughts.add(rest, last=True) if thoughts else Piece("", rest)
        whole = parted(self._text.text, begun) if self._thinks else Piece("", self._text.text)
        self.reasoning_content, self.content = whole.thought or None, whole.said
        if self._request.wanted_tools:
            self.content, self.tool_calls = parse_tool_calls(whole.said)
        delta = _delta(piece)
        if self.tool_calls:
            self.finish_reason = "tool_calls"
            delta = _delta(piece._replace(said=piece.said.partition(TOOL_CALL)[0].rstrip()))
            delta["tool_calls"] = [{"index": index, **call.model_dump()} for index, call in enumerate(self.tool_calls)]
        yield self._entry(delta, unsent)

    def entry(self) -> dict[str, Any]:
        """The finished answer's entry in `choices`."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning_content is not None:
            message["reasoning_content"] = self.reasoning_content
        if self.tool_calls:
            message["tool_calls"] = [call.model_dump() for call in self.tool_calls]
        return {"index": self.index, "message": message, **self._details(self.sampled)}

    def _entry(self, delta: dict[str, Any], sampled: Sequence[Sampled]) -> dict[str, Any]:
        return {"index": self.index, "delta": delta, **self._details(sampled)}

    def _details(self, sampled: Sequence[Sampled]) -> dict[str, Any]:
        details: dict[str, Any] = {"finish_reason": self.finish_reason, "logprobs": None}
        if self._request.logprobs and sampled:
            details["logprobs"] = {"content": [self._logprobs(token) for token in sampled]}
        if self._request.return_token_ids:
            details["token_ids"] = [token.token_id for token in sampled]
        return details

    def _logprobs(self, sampled: Sampled) -> dict[str, Any]:
        top = [self._token(token_id, logprob) for token_id, logprob in sampled.top]
        return {**self._token(sampled.token_id, sampled.logprob), "top_logprobs": top}

    def _token(self, token_id: int, logprob: float) -> dict[str, Any]:
        text = str(self._tokenizer.decode([token_id]))
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def _delta(piece: Piece) -> dict[str, Any]:
    texts = {"reasoning_content": piece.thought, "content": piece.said}
    return {name: text for name, text in texts.items() if text}


class Completion:
    """The choices of one request, sampled together.

    Args:
        prompt: its tokens.
        room: the most tokens that a response may have.
        now: seconds since the epoch.
        thinks: thoughts are told apart from the answers.
    """

    def __init__(
        self,
        request: ChatRequest,
        prompt: Sequence[int],
        room: int,
        tokenizer: PreTrainedTokenizerBase,
        now: float,
        *,
        thinks: bool,
    ) -> None:
        self.id = f"chatcmpl-{uuid.uuid4().hex}"
        self.request = request
        self._prompt = prompt
        self._room = room
        self._created = int(now)
        self._choices = [Choice(index, request, tokenizer, thinks) for index in range(request.n or 1)]

    async def run(self, engine: Engine) -> AsyncGenerator[dict[str, Any], None]:
        """Samples every choice; yields their entries in a stream's `choices` as they come.

        Raises:
            EngineError: the model failed on one of them.
        """
        entries: asyncio.Queue[dict[str, Any] | EngineError | None] = asyncio.Queue()

        async def pump(choice: Choice) -> None:
            try:
                async with aclosing(choice.run(engine, self._prompt, self._sampling(choice.index))) as running:
                    async for entry in running:
                        entries.put_nowait(entry)
                entries.put_nowait(None)
            except EngineError as error:
                entries.put_nowait(error)
            except Exception as error:  # one that stays in this task would leave the request waiting for ever
                log.exception("an answer could not be read", id=self.id)
                entries.put_nowait(EngineError(f"the answer could not be read: {error}"))

        pumps = [asyncio.create_task(pump(choice)) for choice in self._choices]
        try:
            unfinished = len(pumps)
            while unfinished:
                entry = await entries.get()
                if isinstance(entry, EngineError):
                    raise entry
                if entry is None:
                    unfinished -= 1
                else:
                    yield entry
        finally:
            for task in pumps:
                task.cancel()

    def _sampling(self, index: int) -> Sampling:
        request = self.request
        return Sampling(
            max_tokens=min(request.max_completion_tokens or request.max_tokens or self._room, self._room),
            top_p=request.top_p or 1.0,
            top_logprobs=(request.top_logprobs or 0) if request.logprobs else 0,
            seed=None if request.seed is None else request.seed + index,
        )

    def body(self) -> dict[str, Any]:
        """The finished completion."""
        choices = [choice.entry() for choice in self._choices]
        return {**self._head("chat.completion"), "choices": choices, "usage": self._usage()}

    def chunk(self, entry: dict[str, Any] | None) -> dict[str, Any]:
        """One event of a stream; without an entry the last one, with the usage."""
        if entry is None:
            return {**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage()}
        return {**self._head("chat.completion.chunk"), "choices": [entry]}

    def answers(self) -> list[Answer]:
        """Return the answers as they are recorded."""
        return [
            Answer(
                msg_id=self.id,
                prompt_ids=np.array(self._prompt, np.int32),
                response_ids=np.array([sampled.token_id for sampled in choice.sampled], np.int32),
                logprobs=np.array([sampled.logprob for sampled in choice.sampled], np.float32),
                model_version=choice.model_version,
            )
            for choice in self._choices
        ]

    def _head(self, kind: str) -> dict[str, Any]:
        head = {"id": self.id, "object": kind, "created": self._created, "model": self.request.model}
        return head | ({"prompt_token_ids": list(self._prompt)} if self.request.return_token_ids else {})

    def _usage(self) -> dict[str, int]:
        completion = sum(len(choice.sampled) for choice in self._choices)
        return {
            "prompt_tokens": len(self._prompt),
            "completion_tokens": completion,
            "total_tokens": len(self._prompt) + completion,
        }
