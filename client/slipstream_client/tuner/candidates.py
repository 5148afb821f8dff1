"""Models that are compared, each as an object for one run of a workflow that tells afterwards what it took."""

from __future__ import annotations

import copy
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from slipstream_client.tuner.calls import Calls, RunFailed
from slipstream_client.tuner.config import TunerModelConfig
from slipstream_client.tuner.endpoint import served
from slipstream_client.tuner.gateway import Gateway, Upstream
from slipstream_client.tuner.model import TunerModel


@dataclass(frozen=True)
class Usage:
    """Tokens of prompts and of answers."""

    input_tokens: int
    output_tokens: int

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens


Bound = tuple[Any, Callable[[], Usage | None]]
"""A model for one run, and what tells its usage so far; None where an answer did not say."""


class ServedCandidate:
    """A model at an OpenAI-compatible address. Its runs go through the gateway, which sees every answer."""

    def __init__(self, config: TunerModelConfig, gateway: Gateway, timeout: float) -> None:
        upstream = served(config)
        self.name = upstream.model
        self._upstream = _Telling(upstream.base_url, upstream.model, upstream.defaults, upstream.headers)
        self._gateway = gateway
        self._timeout = timeout

    @asynccontextmanager
    async def bound(self) -> AsyncIterator[Bound]:
        calls = Calls(keep=True)
        with self._gateway.route(self._upstream, calls) as base_url:
            model = TunerModel(base_url, self.name, self._timeout)
            try:
                yield model, lambda: _told(_usage(answer) for answer in calls.answers)
            finally:
                with suppress(RunFailed):  # whether it called, and what came of it, is the workflow's
                    calls.close()
                await model.close()


class CallableCandidate:
    """A model object of AgentScope's: called with messages, it returns, or streams, responses with their `usage`."""

    def __init__(self, model: Any) -> None:
        self.name = str(model.model_name)
        self._model = model

    @asynccontextmanager
    async def bound(self) -> AsyncIterator[Bound]:
        usages: list[Usage | None] = []
        yield _counted(self._model, usages), lambda: _told(iter(usages))


@dataclass(frozen=True)
class _Telling(Upstream):
    """Streams too say at their end how many tokens they took."""

    def request(self, given: Mapping[str, Any]) -> dict[str, Any]:
        said = super().request(given)
        if said.get("stream"):
            said["stream_options"] = {**(said.get("stream_options") or {}), "include_usage": True}
        return said


def _usage(answer: list[dict[str, Any]]) -> Usage | None:
    """Return the usage of an answer, whole or in chunks: the last one that it states."""
    told = [usage for part in answer if (usage := part.get("usage"))]
    return Usage(int(told[-1]["prompt_tokens"]), int(told[-1]["completion_tokens"])) if told else None


def _told(usages: Iterator[Usage | None]) -> Usage | None:
    known = list(usages)
    told = [usage for usage in known if usage is not None]
    if not told or len(told) < len(known):
        return None
    return Usage(sum(usage.input_tokens for usage in told), sum(usage.output_tokens for usage in told))


def _counted(model: Any, usages: list[Usage | None]) -> Any:
    """The same model for one run, of a class of its own: `usages` gets one of each call."""
    kind = type(model)

    def note(response: Any) -> Usage | None:
        usage = getattr(response, "usage", None)
        return None if usage is None else Usage(usage.input_tokens, usage.output_tokens)

    async def streamed(chunks: AsyncIterator[Any]) -> AsyncIterator[Any]:
        last = None
        async for chunk in chunks:
            last = note(chunk) or last  # a chunk has the usage so far
            yield chunk
        usages.append(last)

    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        response = await kind.__call__(self, *args, **kwargs)
        if inspect.isasyncgen(response):
            return streamed(response)
        usages.append(note(response))
        return response

    counted = copy.copy(model)
    counted.__class__ = type(kind.__name__, (kind,), {"__call__": call})
    return counted
