"""From the proxy's tap to the store: a bounded queue, drained in batches, off the hot path."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence

from slipstream.capture.completion import CapturedCall, NotCaptured, read_call
from slipstream.capture.conversations import Conversations, Place, completes
from slipstream.capture.retries import Retries
from slipstream.metrics import Metrics
from slipstream.proxy.tap import Exchange
from slipstream.redaction import Redactor
from slipstream.selection import Decision, hash_fraction
from slipstream.selection.tally import tally
from slipstream.store.bodies import pack
from slipstream.store.database import Database
from slipstream.store.recording import Added, NewCall, add_calls
from slipstream.trajectory import Call, Task

_BATCH = 500
"""Exchanges written in one transaction: enough to share its cost, few enough to keep feedback's writes prompt."""

_GATHER = 0.05
"""Seconds that the first exchanges wait for others, because a transaction costs as much as storing twenty calls. What
is said of an answer in the meantime waits for it."""


_NO_LABELS: frozenset[str] = frozenset()


class Recorder:
    """Takes exchanges from the proxy without ever waiting, and stores the calls they hold.

    What is stored is redacted; conversations are recognised on the unredacted messages, of which only hashes stay in
    memory.

    Args:
        decide: decides tasks that are complete with their first call, so that nothing need be read again for those
            that are not selected; None where the Planner is to decide all.
        rate: share of sessions that are stored, by hash of the session id: a session is kept whole or not at all.
        limit_bytes: of bodies that are enough to be waiting here.
        max_body: bytes of a body, as sent and decompressed.
        clock: Unix seconds.
        stored: called after calls were stored, with what that leaves to be done.
        wake: called when there is something to store.
    """

    def __init__(
        self,
        database: Database,
        conversations: Conversations,
        retries: Retries,
        redactor: Redactor,
        metrics: Metrics,
        *,
        decide: Callable[[Task], Decision] | None,
        rate: float,
        limit_bytes: int,
        max_body: int,
        clock: Callable[[], float],
        stored: Callable[[Added], None],
        wake: Callable[[], None],
    ) -> None:
        self._database = database
        self._conversations = conversations
        self._retries = retries
        self._redactor = redactor
        self._metrics = metrics
        self._decide = decide
        self._rate = rate
        self._limit_bytes = limit_bytes
        self._max_body = max_body
        self._clock = clock
        self._stored = stored
        self._wake = wake
        self._queue: deque[Exchange] = deque()
        self._bytes = 0
        self._enough = asyncio.Event()
        self._unwritten: list[NewCall] = []

    def record(self, exchange: Exchange) -> None:
        """Take an exchange. Never waits; whoever sees that it is `full` waits."""
        self._queue.append(exchange)
        self._bytes += _size(exchange)
        if self._fills_a_batch():
            self._enough.set()
        self._wake()

    def full(self) -> bool:
        """Whether enough is here: what is not taken yet is better counted where it waits."""
        return len(self._queue) >= 2 * _BATCH or self._bytes >= self._limit_bytes

    @property
    def waiting(self) -> int:
        """Exchanges that are not stored yet."""
        return len(self._queue) + len(self._unwritten)

    async def step(self) -> bool:
        """Store a batch. Returns True when more is waiting."""
        if not self._unwritten and self._queue:
            if not self._fills_a_batch():
                self._enough.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._enough.wait(), _GATHER)
            batch = [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))]
            self._bytes -= sum(map(_size, batch))
            # parsing, redaction and packing are the costly part, and the control API shares this event loop
            self._unwritten = await asyncio.to_thread(self._read, batch)
        if not self._unwritten:
            return bool(self._queue)
        try:
            async with self._database.write() as session:
                added = await add_calls(session, self._unwritten, self._clock())
        except BaseException:
            # the batch stays and is tried again; it may yet be in the store, so none of its tasks is new for certain
            self._unwritten = [call._replace(new_task=False) for call in self._unwritten]
            raise
        self._metrics.captured.inc(len(self._unwritten))
        tally(self._metrics, [(call.task_id, call.decision) for call in self._unwritten if call.decision is not None])
        self._unwritten = []
        self._stored(added)
        return bool(self._queue)

    def _fills_a_batch(self) -> bool:
        return len(self._queue) >= _BATCH or self._bytes >= self._limit_bytes

    def _read(self, batch: Sequence[Exchange]) -> list[NewCall]:
        # workers tell of their exchanges each by itself, and a conversation's next call may come by another one
        return [call for exchange in sorted(batch, key=_ended_at) if (call := self._call(exchange)) is not None]

    def _call(self, exchange: Exchange) -> NewCall | None:
        call = read_call(exchange, self._max_body)
        if isinstance(call, NotCaptured):
            self._metrics.not_captured.labels(call.reason).inc()
            return None
        for problem in call.headers.problems:
            self._metrics.header_problems.labels(problem).inc()
        if self._retries.seen(call):
            self._metrics.not_captured.labels("retry").inc()
            return None
        # every call is placed, kept or not: the next one of its conversation must find its way
        place = self._conversations.place(call)
        if self._rate < 1 and hash_fraction(place.session_id, "capture") >= self._rate:
            self._metrics.not_captured.labels("rate").inc()
            return None
        return self._ready(call, place)

    def _ready(self, call: CapturedCall, place: Place) -> NewCall:
        """The call as it is stored: redacted and packed, and its task decided where that can be done here."""
        request, request_text = self._redactor.redact_json(call.request, call.request_text)
        answer, answer_text = self._redactor.redact_json(call.answer, call.answer_text)
        said = call.headers
        labels = frozenset(self._redactor.redact(list(said.mark))) if said.mark else _NO_LABELS
        metadata = self._redactor.redact(dict(said.metadata)) if said.metadata else {}
        whole, decision = completes(call), None
        if whole and place.new_task and self._decide is not None:
            alone = Call(place.task_id, 0, request, answer, call.msg_id, call.latency, call.started_at)
            decision = self._decide(Task(place.task_id, place.session_id, (alone,), labels, bool(said.mark), metadata))
        return NewCall(
            session_id=place.session_id,
            task_id=place.task_id,
            new_task=place.new_task,
            request=pack(request_text),
            answer=pack(answer_text),
            msg_id=call.msg_id,
            latency=call.latency,
            started_at=call.started_at,
            completes=whole,
            marked=bool(said.mark),
            labels=labels,
            metadata=metadata,
            decision=decision,
        )


def _ended_at(exchange: Exchange) -> float:
    return exchange.started_at + exchange.duration


def _size(exchange: Exchange) -> int:
    return len(exchange.request_body or b"") + len(exchange.response_body or b"")
