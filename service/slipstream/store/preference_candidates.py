"""Groups whose answers can be compared, and the texts of these answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import exists, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.serving.page import PRODUCTION
from slipstream.store import segments
from slipstream.store.preferences import PairKind
from slipstream.store.segments import StoredRequest
from slipstream.store.states import RunState
from slipstream.store.tables.capture import CallRow, TaskRow
from slipstream.store.tables.preferences import PreferencePairRow
from slipstream.store.tables.runs import GroupRow, RunRow

UNKNOWN_VERSION = "policy"
"""Name of the policy where the version that answered is not known."""

_ANSWERED = RunRow.state.in_((RunState.ANSWERED, RunState.SCORED)) & RunRow.answer.is_not(None)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A group of shadow runs of which a pair can be made.

    Attributes:
        variant: who gave the answer that the user got.
        runs: answered ones, by their row, with the name of who answered.
    """

    group_id: str
    call_id: int
    task_ref: str
    session_ref: str
    tenant: str
    variant: str
    runs: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class PairTexts:
    """The request and both answers of a pair, as they are stored.

    Attributes:
        left, right: answers, packed.
    """

    request: StoredRequest
    left: StoredRequest
    right: StoredRequest


def variant_of(version: int | None) -> str:
    """Return the name of the policy at a version."""
    return UNKNOWN_VERSION if version is None else f"version:{version}"


async def candidates(session: AsyncSession, kind: PairKind, tenant: str | None, limit: int) -> list[Candidate]:
    """Groups without a pair of this kind and with enough answers for one, the newest first.

    Args:
        tenant: None for those of all tenants.
    """
    paired = exists().where(PreferencePairRow.group_id == GroupRow.id, PreferencePairRow.kind == kind)
    answered = select(func.count()).where(RunRow.group_id == GroupRow.id, _ANSWERED)
    enough = 2 if kind is PairKind.RUNS else 1
    query = (
        select(GroupRow.id, CallRow.id, TaskRow.id, TaskRow.session_id, TaskRow.tenant, CallRow.variant)
        .join(CallRow, CallRow.id == GroupRow.call_id)
        .join(TaskRow, TaskRow.id == GroupRow.task_id)
        .where(~paired, answered.scalar_subquery() >= enough)
    )
    if tenant is not None:
        query = query.where(TaskRow.tenant == tenant)
    rows = (await session.execute(query.order_by(GroupRow.updated_at.desc()).limit(limit))).all()
    runs: dict[str, list[tuple[int, str]]] = {}
    made = select(RunRow.group_id, RunRow.id, RunRow.policy_version, _ANSWERED.label("answered"))
    made = made.where(RunRow.group_id.in_([row[0] for row in rows]))  # and no state: SQLite would go by that index
    for group_id, run, version, whole in await session.execute(made):
        if whole:
            runs.setdefault(group_id, []).append((run, variant_of(version)))
    return [
        Candidate(group, call, task, of, whose, variant or PRODUCTION, tuple(sorted(runs[group])))
        for group, call, task, of, whose, variant in rows
    ]


async def texts(session: AsyncSession, call_id: int, left_run: int | None, right_run: int) -> PairTexts | None:
    """The request and both answers of a pair; None where one of them was deleted.

    Args:
        left_run: None for the answer of the call itself.
    """
    columns = select(CallRow.request, CallRow.segment_id, CallRow.answer).where(CallRow.id == call_id)
    call = (await session.execute(columns)).first()
    if call is None:
        return None
    [request] = await segments.stored(session, [(call.request, call.segment_id)])
    runs = [right_run] if left_run is None else [left_run, right_run]
    answers = await _answers(session, runs)
    if len(answers) < len(runs):
        return None
    left = StoredRequest(call.answer) if left_run is None else answers[left_run]
    return PairTexts(request, left, answers[right_run])


async def _answers(session: AsyncSession, runs: Sequence[int]) -> dict[int, StoredRequest]:
    query = select(RunRow.id, RunRow.answer).where(RunRow.id.in_(runs), RunRow.answer.is_not(None))
    return {run: StoredRequest(answer) for run, answer in await session.execute(query) if answer is not None}
