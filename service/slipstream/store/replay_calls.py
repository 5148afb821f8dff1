"""The policy's calls in agent replays: kept with their runs, and read again while the run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.dialects.elements import Split
from slipstream.store import feedback, segments
from slipstream.store.segments import NewRequest, Segment, StoredRequest
from slipstream.store.states import RunState
from slipstream.store.tables.runs import GroupRow, RunCallRow, RunRow
from slipstream.tenants import qualified, tenant_of
from slipstream.usage import NONE, Tokens


@dataclass(frozen=True, slots=True)
class NewCall:
    """A chat completion of a run, to be stored: redacted, and its answer packed.

    Attributes:
        text: of the request.
        split: the text by its messages; None where it cannot be split.
        tokens: all of them, by the Explorer's count; `usage`: those of the prompt and of the answer.
        instructed: the first message of the request is instructions, which hold for this one call.
    """

    msg_id: str
    choices: int
    text: bytes
    split: Split | None
    answer: bytes
    latency: float
    policy_version: int | None
    started_at: float
    tokens: int = 0
    instructed: bool = False
    usage: Tokens = NONE


class MadeCall(NamedTuple):
    """A call that a run has made, its bodies packed."""

    request: StoredRequest
    answer: bytes
    instructed: bool


async def add_call(
    session: AsyncSession, pk: int, call: NewCall, request: NewRequest, expires_at: float, now: float
) -> Mapping[Segment, int] | None:
    """Keep a call of a run that is open.

    Args:
        request: of the call, in the form in which it is stored.

    Returns:
        The segments that were stored, with their ids; None where the run is not open: nothing is kept.
    """
    kept = update(RunRow).where(RunRow.id == pk, RunRow.state == RunState.OPEN)
    if not (await session.execute(kept.values(due_at=expires_at, updated_at=now))).rowcount:  # type: ignore[attr-defined]
        return None
    kept_request = await segments.add(session, [request])
    [(own, segment_id)] = kept_request.columns
    session.add(
        RunCallRow(
            run_pk=pk, msg_id=call.msg_id, choices=call.choices, request=own, segment_id=segment_id,
            answer=call.answer, latency=call.latency, policy_version=call.policy_version, started_at=call.started_at,
            instructed=call.instructed,
        )
    )  # fmt: skip
    await session.flush()
    of_run = select(GroupRow.task_id).join(RunRow, RunRow.group_id == GroupRow.id).where(RunRow.id == pk)
    ref: feedback.Ref = ("msg_id", qualified(tenant_of((await session.execute(of_run)).scalar_one()), call.msg_id))
    if ref in await feedback.awaited(session, [ref], now):
        await feedback.match_waiting(session, [ref], now)
    return kept_request.numbers


async def made_call(session: AsyncSession, pk: int, msg_id: str) -> MadeCall | None:
    """The call of a run that was answered under this id; None where there is none."""
    query = select(RunCallRow.request, RunCallRow.segment_id, RunCallRow.answer, RunCallRow.instructed)
    query = query.where(RunCallRow.run_pk == pk, RunCallRow.msg_id == msg_id)
    row = (await session.execute(query)).first()
    if row is None:
        return None
    [request] = await segments.stored(session, [(row.request, row.segment_id)])
    return MadeCall(request, row.answer, row.instructed)
