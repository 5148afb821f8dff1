"""The commit: what Trinity loses there arrives all the same, and once."""

from __future__ import annotations

import httpx
import pytest
from gateway import Gateway
from real_sidecar import Sidecar, StartSidecar
from real_trinity import RealTrinity
from scripted_engine import ScriptedEngine
from serving import serving, until


async def _steps(trinity: RealTrinity) -> int:
    """Commits that Trinity's process carried out."""
    async with httpx.AsyncClient(base_url=trinity.url, timeout=30) as client:
        steps: int = (await client.get("/metrics")).json()["explore_step_num"]
        return steps


async def _delivered_as(sidecar: Sidecar, trinity: RealTrinity, group: str) -> None:
    """Commit what is run again by now, and see that this alone arrived, whole."""
    await until(lambda: sidecar.ready(2), 30)
    assert (await sidecar.commit())["experiences"] == 2
    rows = trinity.trained()
    assert [(row.task_id, row.run_id) for row in rows] == [(group, 0), (group, 1)]
    assert sorted(row.advantage for row in rows) == pytest.approx([-0.7071, 0.7071], abs=1e-3)


async def test_a_pipeline_error_loses_the_queue_and_the_groups_are_run_again(
    trinity: RealTrinity, start_sidecar: StartSidecar
) -> None:
    async with start_sidecar(trinity) as sidecar:
        await sidecar.group("t", ready=2)
        with trinity.failing_commits():
            assert (await sidecar.commit())["run_again"] == 1
        assert {row["consumed"] for row in trinity.history()} == {1}, "a new feedback would have no effect"
        await _delivered_as(sidecar, trinity, "t.0~1")
        assert await sidecar.group_states("t") == ["rerun", "delivered"]


@pytest.mark.slow
async def test_a_commit_whose_answer_is_lost_is_not_made_again(
    trinity: RealTrinity, start_sidecar: StartSidecar
) -> None:
    gateway = Gateway(trinity.url)
    async with serving(gateway.app()) as url, start_sidecar(trinity, url) as sidecar:
        await sidecar.group("t", ready=2)
        gateway.unanswered["/commit"] = 1
        assert (await sidecar.client.post("/commit")).status_code == 503
        await sidecar.commit()
        assert await sidecar.group_states("t") == ["delivered"]
        assert len(trinity.trained()) == 2
        assert await _steps(trinity) == 1


async def test_without_anything_ready_no_commit_is_sent(trinity: RealTrinity, start_sidecar: StartSidecar) -> None:
    async with start_sidecar(trinity) as sidecar:
        await sidecar.commit()
        assert await _steps(trinity) == 0, "an empty commit would have raised Trinity's step number"


async def test_chats_survive_a_restart_before_their_feedback(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    async with start_sidecar(trinity) as sidecar:
        await sidecar.group("t", ready=2)
        await trinity.restart()
        await _delivered_as(sidecar, trinity, "t.0")
        assert len(engine.chats) == 2, "nothing was run again"


async def test_a_restart_between_feedback_and_commit(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    """The queue is gone, the rows are consumed, and the counters start anew."""
    gateway = Gateway(trinity.url)
    async with serving(gateway.app()) as url, start_sidecar(trinity, url) as sidecar:
        await sidecar.group("before", ready=2)
        await sidecar.commit()
        await sidecar.group("t", ready=2)
        gateway.refused["/commit"] = 1
        assert (await sidecar.client.post("/commit")).status_code == 503
        await trinity.restart()

        counts = await sidecar.commit()
        assert (counts["experiences"], counts["run_again"]) == (0, 1)
        assert await _steps(trinity) == 0, "there was nothing to commit"

        async def counted() -> bool:
            return "slipstream_explorer_restarts_total 1.0" in (await sidecar.client.get("/metrics")).text

        await until(counted)
        await until(lambda: sidecar.ready(2), 30)
        await sidecar.commit()
        assert [row.task_id for row in trinity.trained()] == ["before.0"] * 2 + ["t.0~1"] * 2


@pytest.mark.slow
async def test_a_restart_right_before_the_commit_which_then_commits_nothing(
    trinity: RealTrinity, start_sidecar: StartSidecar
) -> None:
    """Trinity answers 200 to it: the queue of its new process is empty."""
    gateway = Gateway(trinity.url)
    async with serving(gateway.app()) as url, start_sidecar(trinity, url) as sidecar:
        await sidecar.group("t", ready=2)
        gateway.before["/commit"].append(trinity.restart)
        counts = await sidecar.commit()
        assert (counts["experiences"], counts["run_again"]) == (0, 1)
        await _delivered_as(sidecar, trinity, "t.0~1")


@pytest.mark.slow
async def test_a_crash_in_the_middle_of_a_groups_feedback(trinity: RealTrinity, start_sidecar: StartSidecar) -> None:
    """The half that was not fed back yet must not go out without the other."""
    gateway = Gateway(trinity.url)
    async with serving(gateway.app()) as url, start_sidecar(trinity, url) as sidecar:
        await sidecar.group("t", ready=2)

        async def nothing() -> None: ...

        gateway.before["/feedback"].extend([nothing, trinity.kill])
        assert (await sidecar.client.post("/commit")).status_code == 503
        await trinity.start()
        assert (await sidecar.commit())["run_again"] == 1
        await _delivered_as(sidecar, trinity, "t.0~1")


async def test_a_sidecar_that_restarts_before_the_commit_ends_it(
    trinity: RealTrinity, start_sidecar: StartSidecar
) -> None:
    gateway = Gateway(trinity.url)
    async with serving(gateway.app()) as url:
        async with start_sidecar(trinity, url) as sidecar:
            await sidecar.group("t", ready=2)
            gateway.refused["/commit"] = 1
            assert (await sidecar.client.post("/commit")).status_code == 503
        async with start_sidecar(trinity, url) as sidecar:
            assert (await sidecar.commit())["experiences"] == 2
        assert len(trinity.trained()) == 2


@pytest.mark.slow
async def test_a_history_that_is_locked_for_long_loses_nothing(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    """SQLite waits 5 s for a lock, and Trinity tries twice: then chats and feedback get 500."""
    async with start_sidecar(trinity) as sidecar:
        await sidecar.group("t", ready=2)
        with trinity.locked_history():
            await sidecar.planned("meanwhile")
            assert (await sidecar.client.post("/commit")).status_code == 503
            await until(lambda: sidecar.retried(), 30)
        assert (await sidecar.commit())["experiences"] == 2
        await until(lambda: sidecar.ready(2), 60)
        await sidecar.commit()
        assert sorted(row.task_id for row in trinity.trained()) == ["meanwhile.0"] * 2 + ["t.0"] * 2
