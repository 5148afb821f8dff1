"""The interface of traces to the training side, and the tracer that makes none.

    with tracer.span(SpanName.SCORE, {Attribute.RUN: 3}, follows=policy_key("chatcmpl-1")) as span:
        span.set({Attribute.REWARD: 0.5})

Call sites read the same whether traces are made or not.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from slipstream.tracing.catalogue import Attributes, SpanName
from slipstream.tracing.context import TraceParent


class Span(Protocol):
    """One span, while it is open."""

    def set(self, attributes: Attributes) -> None:
        """Add attributes. Long values are cut."""
        ...

    def fail(self, error: str) -> None:
        """Mark what it tells of as failed: `error` is one of few words, and no message, which could quote somebody."""
        ...

    def remember(self, key: str) -> None:
        """Have later spans find this one by a key."""
        ...


@dataclass(frozen=True, slots=True)
class Past:
    """A span that is over when it is made.

    Attributes:
        started_at, ended_at: Unix seconds.
        error: as in `Span.fail`; None if nothing failed.
    """

    name: SpanName
    started_at: float
    ended_at: float
    attributes: Attributes
    model: str | None = None
    error: str | None = None


class Tracer(Protocol):
    """Makes spans of the work of this process. Nothing that it does waits for a collector, or raises.

    A span that is made within another one is its child. One *follows* another if that was made earlier and is found by
    its key: it has a link to it, and is recorded because that one was. Else `otel.ratio` decides.
    """

    @property
    def on(self) -> bool:
        """Return whether spans are made at all."""
        ...

    def span(
        self,
        name: SpanName,
        attributes: Attributes,
        *,
        model: str | None = None,
        parent: TraceParent | None = None,
        follows: str | None = None,
    ) -> AbstractContextManager[Span]:
        """Open a span until the block ends; an exception marks it as failed, by its class.

        Args:
            model: of a call of a model.
            parent: the caller's span.
            follows: the key of an earlier span.
        """
        ...

    def current(self) -> Span:
        """Return the span within which this is called; outside of any one that takes everything and keeps nothing."""
        ...

    def past(self, past: Past) -> None:
        """Make a span of something that is over, in no trace; `otel.ratio` decides whether it is recorded."""
        ...

    def call(self, past: Past, parent: TraceParent | None, *, key: str | None) -> None:
        """Make the span of a call that a worker has decided to trace; later ones find it by its key."""
        ...

    async def aclose(self) -> None:
        """Export what waits, within `shutdown.TRACES` seconds."""
        ...


def call_key(msg_id: str) -> str:
    """The key of the span of a captured call, by the id in the store of its answer."""
    return f"call {msg_id}"


def policy_key(msg_id: str) -> str:
    """The key of the span of a call of the policy, by the id of its answer."""
    return f"policy {msg_id}"


class _NoSpan:
    """A span that is not recorded."""

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let an exception pass."""

    def set(self, attributes: Attributes) -> None:
        """Keep nothing."""

    def fail(self, error: str) -> None:
        """Keep nothing."""

    def remember(self, key: str) -> None:
        """Keep nothing."""


_NO_SPAN = _NoSpan()


class _NoTracer:
    """The tracer where `otel.endpoint` is not set."""

    on = False

    def span(
        self,
        name: SpanName,
        attributes: Attributes,
        *,
        model: str | None = None,
        parent: TraceParent | None = None,
        follows: str | None = None,
    ) -> AbstractContextManager[Span]:
        return _NO_SPAN

    def current(self) -> Span:
        return _NO_SPAN

    def past(self, past: Past) -> None:
        """Make none."""

    def call(self, past: Past, parent: TraceParent | None, *, key: str | None) -> None:
        """Make none."""

    async def aclose(self) -> None:
        """Nothing waits."""


NO_TRACER: Tracer = _NoTracer()
