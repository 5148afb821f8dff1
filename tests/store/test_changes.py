"""Marks of lists: each moves with what its own list shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import update
from stores import ON_BOTH_STORES

from slipstream.store.changes import marks
from slipstream.store.database import Database
from slipstream.store.states import EvaluationState, ExperimentState, GroupState, RolloutState, RunState, TaskState
from slipstream.store.tables.audit import AuditRow
from slipstream.store.tables.capture import TaskRow
from slipstream.store.tables.evaluations import EvaluationAnswerRow, EvaluationRow
from slipstream.store.tables.experiments import ExperimentRow, ExperimentUnitRow
from slipstream.store.tables.feedback import FeedbackRow, FeedbackTargetRow
from slipstream.store.tables.preferences import PreferencePairRow
from slipstream.store.tables.privacy import ErasureRow
from slipstream.store.tables.rollouts import RolloutRow, RolloutUnitRow
from slipstream.store.tables.runs import GroupRow, RunRow
from slipstream.store.tables.versions import AliasChangeRow, AliasRow, VersionRow

EVALUATION = {"version": 8, "suite": "s", "trigger": "hand", "opened_at": 1.0}
PLACES = {"kind": "production", "task_ref": "t", "session_ref": "s", "left_variant": "a", "right_variant": "b"}
UNIT = {"unit": "u", "treated": True, "first_at": 1.0}
RATES = {"failure": 0.0, "latency": 0.0, "feedback": 0.0}


def steps() -> list[tuple[Any, set[str]]]:
    """What happens in a store, and the lists that show it."""
    return [
        (TaskRow(id="t", session_id="s", created_at=1.0, updated_at=1.0, tries=0), {"tasks"}),
        (update(TaskRow).values(state=TaskState.COMPLETE, decided=True), {"tasks"}),
        (GroupRow(id="g", task_id="t", updated_at=2.0), {"tasks"}),
        (RunRow(id=1, group_id="g", run_id=0, tries=0, updated_at=2.0), {"tasks"}),
        (update(RunRow).values(state=RunState.ANSWERED), {"tasks"}),
        (update(RunRow).values(state=RunState.SCORED, reward=1.0), {"tasks"}),
        (update(GroupRow).values(state=GroupState.READY, updated_at=3.0), {"tasks"}),
        (FeedbackRow(id="f", created_at=3.0), set()),
        (FeedbackTargetRow(feedback_id="f", kind="task_id", ref="t"), {"tasks"}),
        (VersionRow(version=8, seen_at=1.0), {"versions"}),
        (update(VersionRow).values(reward_count=3), {"versions"}),
        (update(VersionRow).values(weights="00"), {"versions"}),
        (AliasRow(name="champion", version=8, changed_at=1.0), set()),
        (AliasChangeRow(name="champion", version=8, at=1.0), {"versions"}),
        (RolloutRow(id=1, version=8, plan={}, position=1, promotions=0, level=0.1, opened_at=1.0), {"rollouts"}),
        (update(RolloutRow).values(asked={"action": "promote"}), {"rollouts"}),
        (update(RolloutRow).values(state=RolloutState.RUNNING), {"rollouts"}),
        (RolloutUnitRow(rollout_id=1, **UNIT, **RATES), {"rollouts"}),
        (ExperimentRow(id=1, name="e", version=8, plan={}, started_at=1.0), {"experiments"}),
        (update(ExperimentRow).values(state=ExperimentState.RUNNING), {"experiments"}),
        (ExperimentUnitRow(experiment_id=1, measured={}, **UNIT), {"experiments"}),
        (PreferencePairRow(id="p", **PLACES, created_at=1.0, updated_at=1.0), {"preferences"}),
        (update(PreferencePairRow).values(judged=1, updated_at=2.0), {"preferences"}),
        (EvaluationRow(id=1, **EVALUATION), {"evaluations", "versions"}),
        (update(EvaluationRow).values(state=EvaluationState.RUNNING, begun_at=2.0), {"evaluations", "versions"}),
        (EvaluationAnswerRow(evaluation_id=1, position=0, arm="version", repeat=0, outcome="scored"), {"evaluations"}),
        (update(EvaluationRow).values(state=EvaluationState.DONE, ended_at=3.0), {"evaluations", "versions"}),
        (AuditRow(at=1.0, action="commit", refs=[], named=0), {"audit"}),
        (ErasureRow(kind="task_id", ref="t", at=1.0, told={}), {"tasks", "preferences"}),
    ]


@pytest.mark.sampled(1)
@ON_BOTH_STORES
async def test_a_mark_moves_with_what_its_list_shows_and_with_nothing_else(database: Database) -> None:
    async def moved(happens: Callable[[Any], Any], tenant: str | None = None) -> set[str]:
        async with database.read() as session:
            before = await marks(session, tenant)
            assert await marks(session, tenant) == before
        async with database.write() as session:
            await happens(session)
        async with database.read() as session:
            after = await marks(session, tenant)
        return {name for name, mark in after.items() if mark != before[name]}

    for step, lists in steps():

        async def happens(session: Any, step: Any = step) -> None:
            await session.execute(step) if hasattr(step, "compile") else session.add(step)

        assert await moved(happens) == lists, step

    async def others(session: Any) -> None:
        session.add(TaskRow(id="tenant=beta/t", session_id="s", tenant="beta", created_at=9.0, updated_at=9.0, tries=0))
        session.add(AuditRow(at=9.0, action="feedback", tenant="beta", refs=[], named=1))
        await session.flush()
        await session.execute(update(TaskRow).values(decided=True))

    assert await moved(others, "acme") == set()
    await database.close()
