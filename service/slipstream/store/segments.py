"""Requests whose conversation is stored once: as what they add to an earlier request.

A *segment* holds the messages that one request adds to those of its parent, and the request's frame (all of it but the
messages) where that is another one than its parent's. A call, captured or of an agent replay, refers to the segment
that its messages end with, and itself holds a frame only if it has another one than that segment. Nothing in the store
says which text a segment has: hashes of short texts would give them away. What goes on from what is known in the memory
of the process that stores it.

A segment is deleted with the last call that needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Select, delete, exists, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.dialects.elements import Frame
from slipstream.jsontext import from_json
from slipstream.store import numbering
from slipstream.store.bodies import pack, unpacked_text
from slipstream.store.bulk import batches, insert_rows
from slipstream.store.tables.capture import CallRow
from slipstream.store.tables.runs import GroupRow, RunCallRow, RunRow
from slipstream.store.tables.segments import SegmentRow

_USERS = (CallRow.segment_id, CallRow.original_segment_id, RunCallRow.segment_id)
"""The columns that refer to segments."""

_INHERITED = b""
"""A call's `request` whose frame is its segment's."""


class _Body(msgspec.Struct, array_like=True):
    """A segment's body. `frame`: None where it is that of the parent."""

    elements: list[bytes]
    frame: Frame | None = None


_encode = msgspec.msgpack.Encoder().encode
_body = msgspec.msgpack.Decoder(_Body).decode
_frame = msgspec.msgpack.Decoder(Frame).decode


class Segment:
    """A segment that this process writes, as it remembers it.

    Args:
        frame: a name of the frame that a request of this segment inherits.
        parent: None for the beginning of a conversation.

    Attributes:
        first: the segment that the conversation begins with.
        number: its id in the store; None if it is not there.
        fresh: it is among the requests that are to be stored next.
        deleted: of a first segment: one of its conversation was found to be gone.
    """

    __slots__ = ("deleted", "first", "frame", "fresh", "number")

    def __init__(self, frame: bytes, parent: Segment | None = None) -> None:
        self.frame = frame
        self.first: Segment = self if parent is None else parent.first
        self.number: int | None = None
        self.fresh = True
        self.deleted = False

    @property
    def usable(self) -> bool:
        """Return whether a request may go on from it. Where one of a conversation is gone, others may be."""
        return not self.first.deleted and (self.fresh or self.number is not None)


class NewRequest(NamedTuple):
    """A request that is to be stored.

    Attributes:
        own: what its call holds, packed: all of it where there is no segment.
        segment: that its messages end with.
        body: of that segment, packed, where it is to be made for this request.
        parent: of the segment that is made; None where it begins a conversation.
        text: of the request, where it needs a segment that may be gone by the time it is stored.
    """

    own: bytes
    segment: Segment | None = None
    body: bytes | None = None
    parent: Segment | None = None
    text: bytes = b""


def whole(text: bytes) -> NewRequest:
    """A request that is stored by itself."""
    return NewRequest(pack(text))


def added(
    text: bytes, frame: Frame, elements: Sequence[Any], segment: Segment, parent: Segment | None = None
) -> NewRequest:
    """A request whose segment is made for it.

    Args:
        elements: the texts of its messages, without those that the parent ends with.
        parent: a segment that is usable.
    """
    inherited = parent is not None and parent.frame == segment.frame
    body = _Body(list(map(bytes, elements)), None if inherited else frame)
    return NewRequest(_INHERITED, segment, pack(_encode(body)), parent, b"" if parent is None else text)


def repeated(text: bytes, frame: Frame, segment: Segment, name: bytes) -> NewRequest:
    """A request whose messages are those that a segment ends with.

    Args:
        name: of its frame.
    """
    return NewRequest(_INHERITED if segment.frame == name else pack(_encode(frame)), segment, text=text)


class Kept(NamedTuple):
    """Requests that were stored.

    Attributes:
        columns: the `request` and the `segment_id` of each call.
        numbers: the ids of the segments that were made.
    """

    columns: list[tuple[bytes, int | None]]
    numbers: dict[Segment, int]


async def add(session: AsyncSession, requests: Sequence[NewRequest]) -> Kept:
    """Store the segments of requests, in a transaction that writes alone. One whose earlier segments were deleted
    meanwhile is to be stored by itself."""
    needed = {known.number for one in requests if (known := one.segment if one.body is None else one.parent)}
    there = await _present(session, needed - {None})
    connection = await session.connection()
    count = sum(one.body is not None for one in requests)
    free = iter(await numbering.take(connection, SegmentRow.__table__, count))  # type: ignore[arg-type]
    kept = Kept([], {})
    rows: list[tuple[Any, ...]] = []
    for one in requests:
        known = one.segment if one.body is None else one.parent
        last = None if known is None else kept.numbers.get(known, known.number if known.number in there else None)
        if known is not None and last is None:
            known.first.deleted = True
            kept.columns.append((await asyncio.to_thread(pack, one.text), None))
            continue
        if one.body is not None and one.segment is not None:
            rows.append((number := next(free), last, one.body))
            last = kept.numbers[one.segment] = number
        kept.columns.append((one.own, last))
    await insert_rows(session, SegmentRow, ("id", "parent_id", "body"), rows)
    return kept


async def _present(session: AsyncSession, numbers: Collection[int | None]) -> set[int]:
    found: set[int] = set()
    for some in batches(list(numbers)):
        found.update(await session.scalars(select(SegmentRow.id).where(SegmentRow.id.in_(some))))
    return found


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A request as it is stored. Reading it takes a while for a long one, so that it is done in a thread.

    Attributes:
        own: of the call, packed.
        bodies: of its segments, packed, the conversation's first one first.
    """

    own: bytes
    bodies: tuple[bytes, ...] = ()

    @property
    def size(self) -> int:
        """Bytes, packed."""
        return len(self.own) + sum(map(len, self.bodies))

    def text(self) -> bytes:
        """The text in UTF-8, byte for byte as it was stored."""
        if not self.bodies:
            return unpacked_text(self.own)
        frame: Frame | None = None
        elements: list[bytes] = []
        for packed in self.bodies:
            body = _body(unpacked_text(packed))
            frame = body.frame or frame
            elements += body.elements
        if self.own != _INHERITED:
            frame = _frame(unpacked_text(self.own))
        assert frame is not None, "a conversation's first segment has one"
        return frame.filled(elements)

    def read(self) -> dict[str, Any]:
        """The request."""
        request: dict[str, Any]
        request, _ = from_json(self.text())
        return request


async def stored(session: AsyncSession, columns: Sequence[tuple[bytes | None, int | None]]) -> list[StoredRequest]:
    """The requests of calls, by their `request` and `segment_id` (or those of their originals)."""
    parents: dict[int, int | None] = {}
    bodies: dict[int, bytes] = {}
    for some in batches(sorted({last for _, last in columns if last is not None})):
        reached = _reached(some)
        query = select(SegmentRow.id, SegmentRow.parent_id, SegmentRow.body)
        for number, parent, body in await session.execute(query.where(SegmentRow.id.in_(select(reached.c.id)))):
            parents[number], bodies[number] = parent, body
    requests = []
    for own, last in columns:
        chain: list[bytes] = []
        while last is not None:
            chain.append(bodies[last])
            last = parents[last]
        requests.append(StoredRequest(own or _INHERITED, tuple(reversed(chain))))
    return requests


def elements_of(body: bytes) -> list[bytes]:
    """The texts of the messages that a segment adds to its parent's.

    Args:
        body: of the segment, unpacked.
    """
    return _body(body).elements


async def of_tasks(session: AsyncSession, tasks: Select[Any] | Sequence[str]) -> list[int]:
    """The segments that calls of these tasks refer to."""
    runs = select(RunRow.id).join(GroupRow, GroupRow.id == RunRow.group_id).where(GroupRow.task_id.in_(tasks))
    found: set[int] = set()
    for column in _USERS:
        theirs = RunCallRow.run_pk.in_(runs) if column.class_ is RunCallRow else CallRow.task_id.in_(tasks)
        query = select(column).where(theirs, column.is_not(None)).distinct()
        found.update(number for number in await session.scalars(query) if number is not None)
    return sorted(found)


async def delete_unused(session: AsyncSession, last: Sequence[int]) -> None:
    """Delete those of these segments, and of the ones before them, that no call needs any more."""
    for some in batches(last):
        reached = _reached(some)
        of_reached = SegmentRow.id.in_(select(reached.c.id))
        child = SegmentRow.__table__.alias("child")
        goes_on = exists().where(child.c.parent_id == SegmentRow.id, child.c.id.not_in(select(reached.c.id)))
        named = [exists().where(column == SegmentRow.id) for column in _USERS]
        used = select(SegmentRow.id, SegmentRow.parent_id).where(of_reached, or_(goes_on, *named))
        needed = _with_earlier(used, "needed")
        unused = delete(SegmentRow).where(of_reached, SegmentRow.id.not_in(select(needed.c.id)))
        await session.execute(unused.execution_options(synchronize_session=False))


def _reached(last: Sequence[int]) -> Any:
    return _with_earlier(select(SegmentRow.id, SegmentRow.parent_id).where(SegmentRow.id.in_(last)), "reached")


def _with_earlier(some: Select[int, int | None], name: str) -> Any:
    """These segments and those before them, as a common table expression with the columns `id` and `parent_id`."""
    found = some.cte(name, recursive=True)
    earlier = select(SegmentRow.id, SegmentRow.parent_id).join(found, found.c.parent_id == SegmentRow.id)
    return found.union(earlier)
