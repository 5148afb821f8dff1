"""From what is kept of exchanges to calls in their tasks, a batch at a time, when there is time for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.capture.backlog import Backlog
from slipstream.capture.completion import CapturedCall, read_call
from slipstream.capture.conversations import Conversations, completes
from slipstream.capture.histories import Histories, Items, Newest, named_in, names_of, refers
from slipstream.capture.place import Place
from slipstream.capture.prefixes import Prefixes
from slipstream.capture.redacted import RedactedExchange, pack_exchanges, unpack_exchanges
from slipstream.capture.retries import Retries
from slipstream.capture.throttle import RecorderThrottle
from slipstream.dialects.body import NotCaptured
from slipstream.memory.parsing import memory_of
from slipstream.selection import Decision
from slipstream.selection.tally import tally
from slipstream.serving.page import PRODUCTION
from slipstream.stages.context import Context, Stage
from slipstream.store import captured, erasure, histories, quarantine, sidecars, units
from slipstream.store.bodies import pack
from slipstream.store.captured import CaptureBatch
from slipstream.store.recording import Added, NewCall, add_calls
from slipstream.store.replaced_answers import Stored
from slipstream.store.segments import NewRequest
from slipstream.store.units import Outcome
from slipstream.tenants import name_of, qualified
from slipstream.trajectory import Call, Task
from slipstream.usage import Kind

_log = structlog.get_logger(__name__)

_BATCH = 500
"""Calls stored in one transaction: enough to share its cost, few enough to keep feedback's writes prompt."""

_BATCH_BYTES = 64 * 1024**2
"""Limit of body bytes that are read at once."""

_COPIES = 3
"""Copies of a body's values: the chat form of another dialect is one, and the states of a conversation take as much as
its messages."""

_LOOK = 0.1
"""Seconds between two looks whether it is this stage's turn."""


_FEW = 16
"""Exchanges of a batch that are read at once after a process died while it read them. After a second death it is one
alone, so that the third tells which exchange it is."""


class _Unwritten(NamedTuple):
    """Batches that were read in the name of this sidecar, and the calls that they gave.

    Attributes:
        outcomes: of the exchanges that were in an arm, in their order, captured or not.
        rest: of the only batch, where a part of it was read.
        apart: the exchange that is set apart, packed, instead of being read.
    """

    owner: int
    batches: list[CaptureBatch]
    calls: list[NewCall]
    outcomes: list[Outcome]
    rest: CaptureBatch | None = None
    apart: bytes | None = None


class Recorder:
    """Reads what the CaptureWriter wrote, and stores the calls in its place.

    A batch leaves in the transaction that stores its calls: a kill loses none and stores none twice. What was read is
    remembered until that has come to its end, because no call is placed twice.

    Args:
        decide: decides tasks that are complete with their first call, so that nothing need be read again for those
            that are not selected; None where the Planner is to decide all.
    """

    def __init__(
        self,
        context: Context,
        backlog: Backlog,
        throttle: RecorderThrottle,
        conversations: Conversations,
        retries: Retries,
        decide: Callable[[Task], Decision] | None,
    ) -> None:
        self._stages = context.stages
        self._database = context.database
        self._metrics = context.metrics
        self._clock = context.clock
        self._parsing = context.parsing
        self._backlog = backlog
        self._throttle = throttle
        self._conversations = conversations
        self._retries = retries
        self._decide = decide
        self._unwritten: _Unwritten | None = None
        self._remembered = context.settings.capture.chains
        self._retention = context.settings.capture.retention
        self._items, self._newest = Items(), Newest(self._remembered)
        self._histories = Histories(self._items, self._newest)
        """For the batch that is read."""
        self._prefixes = Prefixes(self._remembered)

    def registered(self) -> None:
        """From here on it writes in the name of a registration: what it knows of the store may be of another store."""
        self._prefixes = Prefixes(self._remembered)

    async def step(self) -> bool:
        """Store a batch where it is this stage's turn. Returns True when more is waiting."""
        if not self._backlog.counted:
            await self._backlog.recount(self._database)
        if not self._backlog.exchanges:
            return False
        if pause := self._throttle.pause():
            await asyncio.sleep(min(pause, _LOOK))
            return True
        self._throttle.begins()
        try:
            await self._store()
        finally:
            self._throttle.ends()
        return self._backlog.exchanges > 0

    async def _store(self) -> None:
        read, owner = self._unwritten, self._backlog.owner
        if read is None or read.owner != owner:  # what was another registration's is another sidecar's to read
            async with self._database.write(alone=False) as session:
                await sidecars.hold(session, owner)
                batches = await captured.begin(session, owner, _BATCH, _BATCH_BYTES, up_to=self._backlog.last_id)
            if not batches:  # somebody else took them out
                await self._backlog.recount(self._database)
                return
            self._histories = await self._earlier(batches)
            # parsing and packing are the costly part, and the control API shares this event loop
            read = self._unwritten = await asyncio.to_thread(self._read, owner, batches)
        async with self._database.write() as session:
            # an earlier try may have come to its end, though nobody heard of it
            added = Added(undecided=True, rescore=True)
            if await _left(session, owner, read):
                if read.apart is not None:
                    await quarantine.quarantine_exchange(session, read.apart, self._clock())
                if read.outcomes:
                    await units.add(session, read.outcomes)
                if read.calls:
                    added = await add_calls(session, read.calls, self._clock())
        self._unwritten = None
        self._prefixes.stored(added.segments)
        if read.rest is None:
            self._backlog.taken(owner, read.batches)
        else:
            self._backlog.shrunk(owner, read.batches[0], read.rest)
        self._metrics.captured.inc(len(read.calls))
        tally(self._metrics, [(call.task_id, call.decision) for call in read.calls if call.decision is not None])
        if read.calls and added.undecided:
            self._stages.wake(Stage.PLANNER)
        if read.calls and added.rescore:
            self._stages.wake(Stage.SCORER)

    async def _earlier(self, batches: Sequence[CaptureBatch]) -> Histories:
        """The conversations that these exchanges go on from, where the provider holds them."""
        if any(refers(batch.packed) for batch in batches):
            kept_since = self._clock() - self._retention
            async with self._database.read() as session:
                self._items.forget(await erasure.standing(session, kept_since), kept_since)
        suspects = [batch.packed for batch in batches if named_in(batch.packed)]
        if not suspects:
            return Histories(self._items, self._newest)
        names = set(map(self._newest.answer, await asyncio.to_thread(_names, suspects)))
        async with self._database.read() as session:
            stored = await histories.stored_calls(session, names)
        return await asyncio.to_thread(Histories, self._items, self._newest, stored)

    def _read(self, owner: int, batches: list[CaptureBatch]) -> _Unwritten:
        if not batches[0].tries:
            return _Unwritten(owner, batches, *self._calls(batches))
        [batch] = batches
        try:
            kept = unpack_exchanges(batch.packed)
        except msgspec.MsgspecError:
            return _Unwritten(owner, batches, *self._calls(batches))  # which says so
        dangerous = batch.tries >= quarantine.MOST_DEATHS
        some = _FEW if batch.tries == 1 else 1
        rest = kept[some:]
        left = CaptureBatch(batch.id, len(rest), pack_exchanges(rest), 0 if dangerous else batch.tries)
        calls = [] if dangerous else [call for one in kept[:some] if (call := self._call(one)) is not None]
        apart = pack_exchanges(kept[:1]) if dangerous else None
        outcomes = [] if dangerous else _outcomes(kept[:some])
        return _Unwritten(owner, batches, calls, outcomes, left if rest else None, apart)

    def _calls(self, batches: Sequence[CaptureBatch]) -> tuple[list[NewCall], list[Outcome]]:
        calls, outcomes = list[NewCall](), list[Outcome]()
        for batch in batches:
            try:
                kept = unpack_exchanges(batch.packed)
            except msgspec.MsgspecError:
                _log.exception("capture_unreadable", exchanges=batch.exchanges)
                self._metrics.not_captured.labels("unreadable").inc(batch.exchanges)
                continue
            calls += [call for one in kept if (call := self._call(one)) is not None]
            outcomes += _outcomes(kept)
        return calls, outcomes

    def _call(self, kept: RedactedExchange) -> NewCall | None:
        if not kept.request:
            return None  # it is not captured, and only told how it went
        for problem in kept.problems:
            self._metrics.header_problems.labels(problem).inc()
        try:
            with self._parsing.held_by_thread(memory_of(kept.request, kept.answer, copies=_COPIES)):
                call = read_call(kept, self._histories)
                if not isinstance(call, NotCaptured):
                    return self._placed(call, held=kept.held)
                reason: str = call.reason
        except Exception:  # noqa: BLE001 - those after it are read all the same
            _log.exception("capture_unreadable")
            reason = "unreadable"
        self._metrics.not_captured.labels(reason).inc()
        return None

    def _placed(self, call: CapturedCall, *, held: bool) -> NewCall | None:
        earlier = None if call.history is None else self._histories.earlier(call.history)
        if held and earlier is None:  # so its session was left out
            self._metrics.not_captured.labels("rate").inc()
            return None
        tried = self._retries.earlier(call)
        if tried is None:
            place, replaces = self._conversations.place(call, earlier), None
        else:
            place = self._conversations.again(call, tried.place)
            replaces = Stored(_stored_id(call.tenant, tried.msg_id), tried.started_at)
        self._retries.add(call, place)
        self._histories.add(call, place)
        return self._ready(call, place, replaces)

    def _ready(self, call: CapturedCall, place: Place, replaces: Stored | None) -> NewCall:
        """The call as it is stored: packed, and its task decided where that can be done here."""
        marked = bool(call.mark)
        if call.variant not in (None, PRODUCTION):
            self._metrics.tokens.used(Kind.LIVE, call.tenant, call.answer)
        whole, decision = completes(call), None
        if whole and place.new_task and self._decide is not None:
            task_id, session_id = name_of(place.task_id), name_of(place.session_id)
            said = call.request, call.answer, call.msg_id
            alone = Call(task_id, 0, *said, call.latency, call.started_at, call.problem, call.dialect, call.variant)
            task = Task(task_id, session_id, (alone,), call.mark, marked, call.metadata, call.tenant)
            decision = self._decide(task)
        return NewCall(
            session_id=place.session_id,
            task_id=place.task_id,
            new_task=place.new_task,
            request=self._prefixes.stored_form(call.request_text, call.messages),
            answer=pack(call.answer_text),
            msg_id=_stored_id(call.tenant, call.msg_id),
            latency=call.latency,
            started_at=call.started_at,
            completes=whole,
            marked=marked,
            labels=call.mark,
            metadata=call.metadata,
            decision=decision,
            dialect=call.dialect,
            problem=call.problem,
            original=self._original(call),
            served=call.served,
            replaces=replaces,
        )

    def _original(self, call: CapturedCall) -> tuple[NewRequest, bytes] | None:
        if call.original is None:
            return None
        request, answer = call.original
        return self._prefixes.stored_form(request, call.original_messages), pack(answer)


def _stored_id(tenant: str, msg_id: str | None) -> str | None:
    return None if msg_id is None else qualified(tenant, msg_id)


def _outcomes(kept: Sequence[RedactedExchange]) -> list[Outcome]:
    """The outcomes of those of these exchanges that were in an arm."""
    return [
        Outcome(one.started_at, one.served) for one in kept if one.served is not None and one.served.arm is not None
    ]


def _names(packed: Sequence[bytes]) -> set[str]:
    """The answers and conversations that these exchanges go on from. Exchanges that cannot be unpacked are skipped, and
    logged when they are read."""
    names: set[str] = set()
    for batch in packed:
        with suppress(msgspec.MsgspecError):
            names |= names_of(unpack_exchanges(batch))
    return names


async def _left(session: AsyncSession, owner: int, read: _Unwritten) -> bool:
    """Take what was read out of the store; returns whether it was there."""
    if read.rest is not None:
        return await captured.keep_rest(session, owner, read.rest)
    return await captured.drop(session, owner, read.batches)
