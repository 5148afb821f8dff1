"""Search in what was said in tasks: their newest calls are read, unpacked and looked through, one after the other.

There is no index of words. One would hold what was said a second time, outside of the encryption of the store, and
SQLite's keeps the words of deleted texts until it happens to merge its pages. So each look goes through a few hundred
tasks, and costs the same whatever the store holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, case, func, null, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.jsontext import from_json
from slipstream.store.bodies import unpacked_up_to
from slipstream.store.segments import elements_of
from slipstream.store.tables.capture import CallRow, TaskRow
from slipstream.store.tables.segments import SegmentRow
from slipstream.store.task_figures import last_place
from slipstream.trajectory import message_text

AT_ONCE = 50
"""Tasks in one statement, and in one turn of a thread."""

_CALLS = 10
"""Newest calls of a task that are looked through."""

_MOST_PACKED = 16 * 1024
_MOST_BYTES = 256 * 1024
"""Limits of one body, packed and unpacked. A longer one is not looked through."""

MEMORY = AT_ONCE * _CALLS * 2 * _MOST_PACKED + 16 * _MOST_BYTES
"""Bytes that one look takes at most: the packed bodies, and one of them as it is read."""

_OPERATORS = ("system", "developer")
"""Roles of messages that users and agents did not write: a word of theirs would find each task of an agent."""


async def saying(session: AsyncSession, ids: Sequence[str], text: str) -> set[str]:
    """Those of at most `AT_ONCE` tasks in which a text was said, in whatever case: in what the last calls added to the
    conversation, and in the answers to them."""
    near = (CallRow.task_id == TaskRow.id) & (CallRow.position > last_place() - _CALLS)
    whole = case((CallRow.segment_id.is_(None) & _short(CallRow.request), CallRow.request), else_=null())
    columns = (TaskRow.id, whole, _if_short(SegmentRow.body), _if_short(CallRow.answer))
    query = select(*columns).select_from(TaskRow).join(CallRow, near)
    query = query.outerjoin(SegmentRow, SegmentRow.id == CallRow.segment_id).where(TaskRow.id.in_(ids))
    rows = (await session.execute(query)).all()
    return await asyncio.to_thread(_found, rows, text.casefold())


def _short(column: Any) -> ColumnElement[bool]:
    return func.length(column) <= _MOST_PACKED


def _if_short(column: Any) -> Any:
    return case((_short(column), column), else_=null())


def _found(rows: Sequence[Any], text: str) -> set[str]:
    found: set[str] = set()
    for task_id, request, segment, answer in rows:
        if task_id not in found and any(text in said.casefold() for said in _said(request, segment, answer)):
            found.add(task_id)
    return found


def _said(request: bytes | None, segment: bytes | None, answer: bytes | None) -> Iterator[str]:
    if (body := _unpacked(segment)) is not None:
        for element in elements_of(body):
            yield from _of_message(from_json(element)[0])
    if (body := _unpacked(request)) is not None:
        for message in _listed(from_json(body)[0], "messages"):
            yield from _of_message(message)
    if (body := _unpacked(answer)) is not None:
        for choice in _listed(from_json(body)[0], "choices"):
            yield from _of_message(choice.get("message"))


def _unpacked(packed: bytes | None) -> bytes | None:
    return None if packed is None else unpacked_up_to(packed, _MOST_BYTES)


def _of_message(message: Any) -> Iterator[str]:
    """The texts of a message, with the names and arguments of tools that it calls."""
    if isinstance(message, Mapping) and message.get("role") not in _OPERATORS:
        yield message_text(message)
        for call in _listed(message, "tool_calls"):
            if isinstance(function := call.get("function"), Mapping):
                yield f"{function.get('name')} {function.get('arguments')}"


def _listed(value: Any, name: str) -> list[Mapping[str, Any]]:
    """The mappings in a list that is a field of a mapping; agents and models may send anything in its place."""
    listed = value.get(name) if isinstance(value, Mapping) else None
    return [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []
