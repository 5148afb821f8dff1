"""One task, or one answer, as a reader of the control API sees it: where it belongs, what became of its runs, and, for
who may read it, what was said."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from slipstream.jsontext import from_json
from slipstream.memory.parsing import kept_of, memory_of
from slipstream.serving.page import PRODUCTION
from slipstream.store import replays, segments, shadow_requests
from slipstream.store.answer_tokens import usage
from slipstream.store.bodies import unpacked_text
from slipstream.store.feedback import policy_run
from slipstream.store.feedback_views import of_task
from slipstream.store.msg_ids import newest_call
from slipstream.store.segments import StoredRequest
from slipstream.store.tables.capture import CallRow, TaskRow
from slipstream.store.tables.runs import GroupRow, RunCallRow, RunRow
from slipstream.tenants import name_of
from slipstream.trajectory import answer_message

_MOST_BYTES = 32 * 1024**2
"""Limit of body bytes that are read for one view of a task, and of the memory that they take."""

_COPIES = 2
"""Copies of a view in memory: it is copied before it is written as JSON."""

Hold = Callable[[int], Awaitable[None]]
"""Waits for so many bytes of memory, which are held until the view is written; called once for a view."""

_AT_ONCE = 500
"""Names in one query: databases bound the parameters of a statement."""

_QUOTES = ("breakdown", "reason")
"""Fields of a run that can quote an answer."""


async def task_view(session: AsyncSession, ref: str, hold: Hold, *, content: bool) -> dict[str, Any] | None:
    """One task with its calls, groups and runs; None where there is none of this id in the store.

    Args:
        hold: of what is said.
        content: whether it is shown with the conversation, all answers, what rewards are made of, why runs failed, and
            metadata.
    """
    task = await session.get(TaskRow, ref)
    if task is None:
        return None
    columns = select(
        CallRow.id, CallRow.position, CallRow.msg_id, CallRow.latency, CallRow.dialect, CallRow.problem,
        CallRow.variant,
    )  # fmt: skip
    columns = columns.where(CallRow.task_id == ref)
    calls = (await session.execute(columns.order_by(CallRow.position))).all()
    groups = (await session.scalars(select(GroupRow).where(GroupRow.task_id == ref).order_by(GroupRow.id))).all()
    bodies = _NONE
    if content:
        await hold(_COPIES * _MOST_BYTES)
        bodies = await _bodies(session, ref)
    view: dict[str, Any] = {
        "task_id": name_of(task.id),
        "session_id": name_of(task.session_id),
        "tenant": task.tenant,
        "state": task.state,
        "decided": task.decided,
        "selected": task.selected,
        "reason": task.reason,
        "labels": task.labels,
        "created_at": task.created_at,
        "updated_at": task.updated_at,
        "calls": [
            {
                "position": call.position,
                "msg_id": None if call.msg_id is None else name_of(call.msg_id),
                "latency": call.latency,
                "dialect": call.dialect,
                "problem": call.problem,
                "answered_by": call.variant or PRODUCTION,
            }
            for call in calls
        ],
        "groups": [],
        "feedback": await of_task(session, ref, content=content),
    }
    positions = {call.id: call.position for call in calls}
    for group in groups:
        position = positions.get(group.call_id) if group.call_id is not None else None
        view["groups"].append(await _group(session, group, position, bodies if content else None))
    if content:
        view |= {"metadata": task.meta, "conversation": bodies.request.get("messages", [])}
        for shown, call in zip(view["calls"], calls, strict=True):
            shown |= {"answer": bodies.message(bodies.answers, call.id), "usage": usage(bodies.answers, [call.id])}
    return view


async def answer_view(session: AsyncSession, ref: str, hold: Hold, *, content: bool) -> dict[str, Any] | None:
    """One answer, of production or of the policy, and its task; None where there is none of this id in the store."""
    run = await policy_run(session, ref)
    if run is not None:
        return await _policy_answer(session, run, name_of(ref), hold, content=content)
    call = await session.get(CallRow, await newest_call(session, ref) or 0)
    if call is None:
        return None
    where = await _where(session, call.task_id)
    view = {"msg_id": name_of(ref), "answered_by": call.variant or PRODUCTION, **where, "position": call.position}
    view |= {"latency": call.latency, "started_at": call.started_at, "run": None}
    view |= {"dialect": call.dialect, "problem": call.problem}
    if not content:
        return view
    packed = [(call.request, call.segment_id), (call.original_request, call.original_segment_id)]
    request, original = await segments.stored(session, packed)
    bodies: list[StoredRequest | None] = [request, _alone(call.answer), None, None]
    if call.original_request is not None:
        bodies[2:] = [original, _alone(call.original_answer)]
    asked, answered, *of_original = await _read(hold, *bodies)
    there = call.original_request is not None
    view["original"] = dict(zip(("request", "answer"), of_original, strict=True)) if there else None
    return {**view, "request": asked, "answer": answered}


async def _policy_answer(
    session: AsyncSession, run: RunRow, msg_id: str, hold: Hold, *, content: bool
) -> dict[str, Any]:
    group = await session.get_one(GroupRow, run.group_id)
    replayed = await session.scalar(select(RunCallRow).where(RunCallRow.run_pk == run.id, RunCallRow.msg_id == msg_id))
    of_run = {
        "group_id": group.id, "kind": group.kind, "run_id": run.run_id, "state": run.state, "reward": run.reward,
        "breakdown": run.breakdown, "reason": run.reason, "policy_version": (replayed or run).policy_version,
    }  # fmt: skip
    position = await session.scalar(select(CallRow.position).where(CallRow.id == group.call_id))
    view = {
        "msg_id": msg_id, "answered_by": "policy", **await _where(session, group.task_id), "position": position,
        "latency": (replayed or run).latency, "started_at": None if replayed is None else replayed.started_at,
        "run": of_run if content else _without_quotes(of_run),
    }  # fmt: skip
    if not content:
        return view
    if replayed is not None:
        [request] = await segments.stored(session, [(replayed.request, replayed.segment_id)])
        asked, answer = await _read(hold, request, _alone(replayed.answer))
    else:
        call = select(CallRow.request, CallRow.segment_id).where(CallRow.id == group.call_id)
        columns: list[Any] = list(await session.execute(call))
        [repeated] = await segments.stored(session, columns)
        own, of_call, answer = await _read(hold, _alone(run.request), repeated, _alone(run.answer))
        asked = shadow_requests.completed(own, of_call)
    return {**view, "request": asked, "answer": answer}


async def _where(session: AsyncSession, task_id: str) -> dict[str, Any]:
    task = await session.get_one(TaskRow, task_id)
    return {"task_id": name_of(task.id), "session_id": name_of(task.session_id), "tenant": task.tenant}


async def _read(hold: Hold, *bodies: StoredRequest | None) -> list[Any]:
    texts = [None if body is None else await asyncio.to_thread(body.text) for body in bodies]
    await hold(memory_of(*(text for text in texts if text is not None), copies=_COPIES))
    return [None if text is None else (await asyncio.to_thread(from_json, text))[0] for text in texts]


def _alone(packed: bytes | None) -> StoredRequest | None:
    """A body that is stored by itself."""
    return None if packed is None else StoredRequest(packed)


async def _group(
    session: AsyncSession, group: GroupRow, position: int | None, bodies: _Bodies | None
) -> dict[str, Any]:
    told = (
        RunRow.run_id, RunRow.state, RunRow.msg_id, RunRow.reward, RunRow.breakdown, RunRow.policy_version,
        RunRow.reason, RunRow.latency,
    )  # fmt: skip
    rows = await session.execute(select(RunRow.id, *told).where(RunRow.group_id == group.id).order_by(RunRow.run_id))
    runs = {row.id: dict(row._mapping) for row in rows}
    replay = group.kind == replays.KIND
    calls: dict[int, list[tuple[int, str]]] = {}
    if replay:
        made = select(RunCallRow.run_pk, RunCallRow.id, RunCallRow.msg_id, RunCallRow.latency)
        made = made.where(RunCallRow.run_pk.in_(runs)).order_by(RunCallRow.started_at, RunCallRow.id)
        for run_pk, call_pk, msg_id, latency in await session.execute(made):
            calls.setdefault(run_pk, []).append((call_pk, msg_id))
            runs[run_pk]["latency"] = (runs[run_pk]["latency"] or 0.0) + latency
    for pk, run in runs.items():
        del run["id"]
        if replay:
            del run["msg_id"]
            run["msg_ids"] = [msg_id for _, msg_id in calls.get(pk, ())]
        if bodies is not None and replay:
            made_by = [call for call, _ in calls.get(pk, ())]
            run["answers"] = [bodies.message(bodies.replayed, call) for call in made_by]
            run["usage"] = usage(bodies.replayed, made_by)
        elif bodies is not None:
            run |= {"answer": bodies.message(bodies.shadow, pk), "usage": usage(bodies.shadow, [pk])}
    shown = runs.values() if bodies is not None else map(_without_quotes, runs.values())
    return {
        "group_id": group.id,
        "kind": group.kind,
        "position": position,
        "state": group.state,
        "commit": group.commit_id,
        "runs": list(shown),
    }


def _without_quotes(run: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in run.items() if name not in _QUOTES}


@dataclass(frozen=True, slots=True)
class _Bodies:
    """Bodies of a task: the last call's request, and all answers by the rows that have them."""

    request: dict[str, Any]
    answers: dict[int, dict[str, Any]]
    shadow: dict[int, dict[str, Any]]
    replayed: dict[int, dict[str, Any]]

    @staticmethod
    def message(answers: dict[int, dict[str, Any]], pk: int) -> dict[str, Any] | None:
        """Return the message of an answer; None if there is no answer, or no room for it."""
        return dict(answer_message(answers[pk])) if pk in answers else None


_NONE = _Bodies({}, {}, {}, {})


async def _bodies(session: AsyncSession, ref: str) -> _Bodies:
    """The request of the last call, which holds the conversation, and all answers, as far as there is room: the last
    ones go first."""
    calls = select(CallRow.id).where(CallRow.task_id == ref).order_by(CallRow.position.desc())
    runs = select(RunRow.id).join(GroupRow, GroupRow.id == RunRow.group_id).where(GroupRow.task_id == ref)
    replayed = select(RunCallRow.id).where(RunCallRow.run_pk.in_(runs))
    reader = _Reader(session)
    return _Bodies(
        request=await reader.read_request(ref),
        answers=await reader.read(CallRow.answer, calls),
        shadow=await reader.read(RunRow.answer, runs.where(RunRow.answer.is_not(None)).order_by(RunRow.id.desc())),
        replayed=await reader.read(RunCallRow.answer, replayed.order_by(RunCallRow.id.desc())),
    )


class _Reader:
    """Reads packed bodies, `_MOST_BYTES` in all: packed, and again in memory."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session
        self._packed = self._left = _MOST_BYTES

    async def read_request(self, task_id: str) -> dict[str, Any]:
        """The request of a task's last call; {} if there is none, or no room for it."""
        query = select(CallRow.request, CallRow.segment_id).where(CallRow.task_id == task_id)
        last: list[Any] = list(await self._session.execute(query.order_by(CallRow.position.desc()).limit(1)))
        for request in await segments.stored(self._session, last):
            self._packed -= request.size
            if self._packed >= 0:
                text = await asyncio.to_thread(request.text)
                self._left -= kept_of(text)
                return dict((await asyncio.to_thread(from_json, text))[0]) if self._left >= 0 else {}
        return {}

    async def read(
        self, column: InstrumentedAttribute[bytes] | InstrumentedAttribute[bytes | None], rows: Select[Any]
    ) -> dict[int, dict[str, Any]]:
        """The bodies of these rows, from the first on, as far as there is room."""
        pk = column.class_.id
        chosen = []
        for number, size in await self._session.execute(rows.add_columns(func.length(column))):
            self._packed -= size
            if self._packed < 0:
                break
            chosen.append(number)
        packed: dict[int, bytes] = {}
        for at in range(0, len(chosen), _AT_ONCE):
            query = select(pk, column).where(pk.in_(chosen[at : at + _AT_ONCE]))
            packed |= {number: body for number, body in await self._session.execute(query)}  # noqa: C416
        return await asyncio.to_thread(self._unpacked, [(number, packed[number]) for number in chosen])

    def _unpacked(self, packed: Sequence[tuple[int, bytes]]) -> dict[int, dict[str, Any]]:
        found = {}
        for number, body in packed:
            text = unpacked_text(body)
            self._left -= kept_of(text)
            if self._left < 0:
                break
            found[number] = from_json(text)[0]
        return found
