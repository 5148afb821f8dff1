"""Held-out calls of a store that are read in pages: each once, the newest sessions first, and paired with themselves
alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import insert, select, update

from slipstream.errors import RequestError
from slipstream.evaluation import plans
from slipstream.evaluation.pairing import Paired, pair
from slipstream.evaluation.verdicts import Verdicts
from slipstream.rewards import RewardsSettings
from slipstream.rollouts.stage import Rollouts
from slipstream.selection.decision import Decision
from slipstream.settings.evaluation import Evaluation as Settings
from slipstream.settings.evaluation import HeldOut, Suite
from slipstream.store import aliases, evaluations, heldout, tasks, versions
from slipstream.store.bodies import pack
from slipstream.store.database import Database
from slipstream.store.evaluations import Answer, Arm, Evaluation, Key, Outcome
from slipstream.store.recording import NewCall, add_calls
from slipstream.store.segments import whole
from slipstream.store.states import EvaluationState
from slipstream.store.tables.capture import CallRow, TaskRow
from slipstream.store.tables.evaluations import EvaluationCaseRow, EvaluationRow

NOW = 1_000_000.0
_LATER = ["t9", "t10", "t11"]
"""Tasks of one session."""
LEFT = Decision(False, "not_sampled")


def call(number: int) -> NewCall:
    """The first call of a task; three tasks are of one session."""
    return NewCall(
        f"s{number // 3}",
        f"t{number}",
        whole(b"{}"),
        pack({}),
        None,
        1.0,
        NOW,
        True,
        False,
        frozenset(),
        {},
        True,
        LEFT,
    )


async def test_the_last_call_of_each_task_is_found(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    await database.open()
    async with database.write() as session:
        later = [call(number)._replace(new_task=False) for number in (0, 0, 1)]
        await add_calls(session, [*map(call, range(3)), *later], NOW)
        await session.execute(update(TaskRow).values(decided=True))
        for last_calls, positions in ((False, [0, 0, 0]), (True, [2, 1, 0])):
            found = await heldout.newest(session, "suite", 1, last_calls=last_calls)
            places = sorted([await heldout.task_of(session, one.id) for one in found])
            assert places == [(f"t{number}", position) for number, position in enumerate(positions)]
    await database.close()


async def test_pages_give_what_one_look_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    await database.open()
    async with database.write() as session:
        await add_calls(session, [call(number) for number in range(15)], NOW)
        before = list(await session.scalars(select(CallRow.id).where(CallRow.task_id.in_(["t0", "t1", "t2"]))))
        found = {}
        for page in (500, 3, 1):
            monkeypatch.setattr(heldout, "_PAGE", page)
            found[page] = [one.task_id for one in await heldout.newest(session, "suite", 3)]
        assert found[500] == [f"t{number}" for number in range(14, 5, -1)]
        assert found[3] == found[500]
        assert found[1] == [f"t{number}" for number in (14, 13, 12, 11, 10, 9, 8)], (
            "its look ends with the last session"
        )
        evaluation = {"id": 1, "version": 1, "suite": "suite", "trigger": "hand", "begun_at": NOW, "opened_at": NOW}
        await session.execute(insert(EvaluationRow).values(**evaluation))
        for number, pk in enumerate(before):
            case = {"evaluation_id": 1, "position": number, "name": "", "key": "", "session": 0, "call_id": pk}
            await session.execute(insert(EvaluationCaseRow).values(**case))
        monkeypatch.setattr(heldout, "_PAGE", 2)
        again = [one.task_id for one in await heldout.newest(session, "suite", 2)]
        assert again == ["t0", "t1", "t2", "t14", "t13"]
        for number, pk in enumerate(await session.scalars(select(CallRow.id).where(CallRow.task_id.in_(_LATER)))):
            case = {"evaluation_id": 1, "position": 3 + number, "name": "", "key": "", "session": 1, "call_id": pk}
            await session.execute(insert(EvaluationCaseRow).values(**case))
        again = [one.task_id for one in await heldout.newest(session, "suite", 2)]
        assert again == ["t0", "t1", "t2", *_LATER], "all cases of its sessions, though the first ones name them all"
    await database.close()


async def evaluated(database: Database, version: int, value: float, **settings: Any) -> Evaluation:
    """An evaluation on the held-out sessions in which each answer has this value."""
    suite = Suite(name="live", heldout=HeldOut(sessions=10))
    rows = plans.rows_of(await plans.cases_of(suite, database, RewardsSettings()))
    described = {"calculators": {"digest": "same"}, "parameters": {}, "clip": [0, 1], "margin": 0.05, "level": 0.05}
    async with database.write() as session:
        opened = await evaluations.open_(session, version, suite.name, "hand", None, NOW)
        begun = await evaluations.begin(session, opened.id, rows, described | settings, "explorer", NOW)
        answer = Answer(Outcome.SCORED, value, {}, 1.0)
        await evaluations.save(session, begun.id, {Key(row.position, Arm.VERSION, 0): answer for row in rows})
        done = {"against_production": None}
        return await evaluations.end(session, begun.id, EvaluationState.DONE, NOW, result=done)


async def paired(database: Database, one: Evaluation, other: Evaluation) -> Paired:
    async with database.read() as session:
        return await pair(session, one, other, 10)


async def test_another_call_or_another_reference_is_not_paired(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    await database.open()
    async with database.write() as session:
        await add_calls(session, [call(0), call(3), call(6)], NOW)
        newest = await session.scalar(select(CallRow.id).where(CallRow.task_id == "t6"))
    champion = await evaluated(database, 1, 0.0)
    again = await paired(database, await evaluated(database, 2, 1.0), champion)
    assert (again.judgement["difference"], again.judgement["cases"]) == (1, 3)
    async with database.write() as session:
        await session.execute(update(TaskRow).where(TaskRow.id == "t3").values(meta={"reference": "another"}))
        await tasks.delete_tasks(session, ["t6"])
        await add_calls(session, [call(9)], NOW)
        assert await session.scalar(select(CallRow.id).where(CallRow.task_id == "t9")) == newest, "as SQLite does"
    after = await paired(database, await evaluated(database, 3, 1.0), champion)
    assert (after.judgement["sessions"], after.judgement["cases"]) == (1, 1), "what neither was deleted nor changed"
    await database.close()


async def test_answers_by_other_parameters_or_calculators_are_not_paired_and_the_reason_is_told(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    await database.open()
    async with database.write() as session:
        await add_calls(session, [call(0), call(3)], NOW)
        await versions.record_version(session, 1, NOW)
        await aliases.point(session, "champion", 1, None, NOW)
    champion = await evaluated(database, 1, 0.0, parameters={"max_tokens": 100})
    shorter = await paired(database, await evaluated(database, 2, 1.0, parameters={"max_tokens": 20}), champion)
    assert (shorter.judgement["cases"], shorter.judgement["verdict"]) == (0, "not_enough_data")
    assert shorter.reason == (
        'evaluation 1 has the parameters {"max_tokens": 100}, and evaluation 2 {"max_tokens": 20}'
    )
    async with database.read() as session:
        with pytest.raises(RequestError, match="not enough data, 0 sessions because evaluation 1 has the parameters"):
            await Verdicts(Settings(), cast("Rollouts", None)).required(session, 2)
    scored = {"parameters": {"max_tokens": 100}, "calculators": {"digest": "another"}}
    assert (await paired(database, await evaluated(database, 3, 1.0, **scored), champion)).reason == (
        "evaluation 1 was scored by other calculators"
    )
    same = await paired(database, await evaluated(database, 4, 1.0, parameters={"max_tokens": 100}), champion)
    assert (same.judgement["cases"], same.reason) == (2, None)
    await database.close()
