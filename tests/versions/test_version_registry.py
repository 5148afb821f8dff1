"""What rollouts ask of the register: a version in the lane, and its states."""

from __future__ import annotations

import asyncio
import fcntl
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import IO, Any

import pytest
from checkpoint_job import CheckpointJob

from slipstream.settings.serving import Serving
from slipstream.store import aliases, version_views, versions
from slipstream.store.database import Database
from slipstream.store.states import ImpossibleTransition, VersionState
from slipstream.versions import keeping
from slipstream.versions.files import NotPlaced
from slipstream.versions.lanes import LaneStep
from slipstream.versions.registry import VersionRegistry


@pytest.fixture
def job(tmp_path: Path) -> CheckpointJob:
    return CheckpointJob(tmp_path / "job")


@pytest.fixture
async def busy(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set once somebody was refused a folder that another holds."""
    refused, loop, flock = asyncio.Event(), asyncio.get_running_loop(), fcntl.flock

    def tell(file: IO[str], how: int) -> None:
        try:
            flock(file, how)
        except BlockingIOError:
            loop.call_soon_threadsafe(refused.set)
            raise

    monkeypatch.setattr(fcntl, "flock", tell)
    return refused


async def begun(work: Coroutine[Any, Any, None], *until: asyncio.Event) -> asyncio.Task[None]:
    """Start something, and return once it has ended or one of the events has come."""
    task = asyncio.create_task(work)
    waiting = [asyncio.create_task(event.wait()) for event in until]
    await asyncio.wait([task, *waiting], return_when=asyncio.FIRST_COMPLETED)
    for one in waiting:
        one.cancel()
    return task


async def kept_by(database: Database) -> dict[int, str]:
    """Why each version is kept; all of them must be there."""
    async with database.read() as session:
        kept = await versions.kept(session)
    for path, _ in kept.values():
        keeping.files_of(Path(path))
    return {version: by for version, (_, by) in kept.items()}


def registry_of(database: Database, **fields: object) -> VersionRegistry:
    return VersionRegistry(Serving.model_validate(fields), database, clock=time.time)


async def test_a_version_is_kept_on_its_way_into_the_lane(
    database: Database, job: CheckpointJob, tmp_path: Path
) -> None:
    lane = {"base_url": "http://127.0.0.1:9/v1", "directory": str(tmp_path / "lane" / "job")}
    registry = registry_of(database, checkpoints=str(job.path), lane=lane, keep_newest=0)
    job.publish(1)
    await registry.step()
    assert await registry.in_lane() is None
    assert [await registry.put_in_lane(1), await registry.put_in_lane(1)] == [1, 1]
    assert await registry.put_in_lane(1, anew=True) == 2
    assert await registry.in_lane() == LaneStep(2, 1)
    with pytest.raises(NotPlaced, match="version 9"):
        await registry.put_in_lane(9)
    async with registry.releasing(1), database.write() as session:
        await versions.release(session, 1, 1.0)
    assert await registry.in_lane() == LaneStep(2, 1)
    job.prune(1)
    job.publish(1, "other weights of 1")
    await registry.step()
    assert await registry.in_lane() == LaneStep(2, None, replaced=1), "it has the weights of before"
    assert await registry.put_in_lane(1) == 3
    assert await registry.in_lane() == LaneStep(3, 1)


async def test_without_a_lane_or_a_folder_it_says_which_key_is_missing(database: Database, tmp_path: Path) -> None:
    with pytest.raises(NotPlaced, match=r"serving\.lane\.directory"):
        await registry_of(database).put_in_lane(1)
    lane = {"base_url": "http://127.0.0.1:9/v1", "directory": str(tmp_path / "lane")}
    with pytest.raises(NotPlaced, match=r"serving\.checkpoints"):
        await registry_of(database, lane=lane).put_in_lane(1)


async def test_a_version_in_use_is_not_released_and_ends_in_a_state_that_says_so(
    database: Database, job: CheckpointJob
) -> None:
    registry = registry_of(database, checkpoints=str(job.path), keep_newest=1)
    job.publish(1)
    await registry.step()
    async with database.write() as session:
        assert await versions.set_state(session, 1, VersionState.CANDIDATE, 1.0)
        assert not await versions.set_state(session, 9, VersionState.CANDIDATE, 1.0)
    job.publish(2)
    await registry.step()
    async with database.read() as session:
        assert set(await versions.kept(session)) == {1, 2}, "a candidate is not released by itself"
        with pytest.raises(versions.InUse, match="it is candidate"):
            await versions.release(session, 1, 2.0)
    async with database.write() as session:
        await versions.set_state(session, 1, VersionState.LIVE, 3.0)
        await versions.set_state(session, 1, VersionState.RETIRED, 4.0)
        with pytest.raises(ImpossibleTransition):
            await versions.set_state(session, 1, VersionState.LIVE, 5.0)
        assert await versions.count(session) == {
            **dict.fromkeys(VersionState, 0),
            VersionState.RETIRED: 1,
            VersionState.KEPT: 1,
        }


async def test_a_number_that_is_served_again_leaves_a_version_that_is_needed(database: Database) -> None:
    """Without the Trainer's directory, where the numbers that the Explorer serves are all that is known."""
    async with database.write() as session:
        for number in (1, 2, 3, 4):
            await versions.record_version(session, number, float(number))
        for state in (VersionState.CANDIDATE, VersionState.LIVE):
            await versions.set_state(session, 2, state, 5.0)
        await versions.note_tested(session, 3, 5.0)
        await versions.note_tested(session, 4, 5.0)
        await aliases.point(session, "champion", 3, None, 5.0)
        for number in (1, 2, 3, 4):  # after a rollback to version 1
            await versions.record_version(session, number, 10.0 + number)
        found, _ = await version_views.page(session, 4)
    told = {one["version"]: (one["state"], one["replaced_at"]) for one in found}
    assert told == {1: ("seen", None), 2: ("live", 12.0), 3: ("tested", 13.0), 4: ("seen", None)}


async def test_the_version_of_a_number_that_came_twice_is_the_new_one_once_the_old_one_is_released(
    database: Database, job: CheckpointJob
) -> None:
    registry = registry_of(database, checkpoints=str(job.path), keep_newest=0)
    job.publish(1)
    await registry.step()
    async with registry.keeping(1) as path, database.write() as session:
        await versions.keep(session, 1, str(path), "hand", 1.0)
        before = await versions.made_at(session, 1)
    job.prune(1)
    job.publish(1, "other weights of 1")
    await registry.step()
    async with database.read() as session:
        assert await versions.replaced(session, 1)
        assert await versions.made_at(session, 1) == before
    async with registry.releasing(1), database.write() as session:
        await versions.release(session, 1, 2.0)
    await registry.step()
    async with database.read() as session:
        assert not await versions.replaced(session, 1)
        assert await versions.made_at(session, 1) != before


async def test_another_training_is_not_kept_for_a_version_in_use(database: Database, job: CheckpointJob) -> None:
    registry = registry_of(database, checkpoints=str(job.path), keep_newest=0)
    job.publish(1)
    await registry.step()
    async with database.write() as session:
        await versions.set_state(session, 1, VersionState.CANDIDATE, 1.0)
    job.prune(1)
    job.publish(1, "other weights of 1")
    await registry.step()
    with pytest.raises(NotPlaced, match=r"its weights are gone; .*global_step_1 is another training"):
        async with registry.keeping(1):
            pass
    assert not (job.path / "kept" / "1").exists()


async def test_a_directory_that_is_not_there_yet_is_waited_for(database: Database, tmp_path: Path) -> None:
    registry = registry_of(database, checkpoints=str(tmp_path / "later"))
    assert await registry.step() is False
    job = CheckpointJob(tmp_path / "later")
    job.publish(1)
    await registry.step()
    async with database.read() as session:
        assert set(await versions.kept(session)) == {1}


async def test_a_version_is_not_named_after_another_sidecar_has_deleted_it(
    database: Database, job: CheckpointJob, busy: asyncio.Event
) -> None:
    here, there = (registry_of(database, checkpoints=str(job.path)) for _ in range(2))
    job.publish(1)
    await here.step()
    job.prune(1)
    found = asyncio.Event()

    async def name() -> None:
        async with here.keeping(1) as path:
            found.set()
            async with database.write() as session:
                await versions.keep(session, 1, str(path), "alias", 1.0)
                await aliases.point(session, "champion", 1, None, 1.0)

    async with there.releasing(1), database.write() as session:
        assert await versions.release(session, 1, 1.0)
        naming = await begun(name(), busy, found)
    with pytest.raises(NotPlaced, match="version 1: not in"):
        await naming
    assert await kept_by(database) == {}


async def test_a_start_does_not_note_what_another_sidecar_is_deleting(
    database: Database, job: CheckpointJob, busy: asyncio.Event
) -> None:
    there, started = (registry_of(database, checkpoints=str(job.path)) for _ in range(2))
    job.publish(1)
    await there.step()
    job.prune(1)

    async def start() -> None:
        await started.step()

    async with there.releasing(1):
        async with database.write() as session:
            assert await versions.release(session, 1, 1.0)
        starting = await begun(start(), busy)
    await starting
    assert await kept_by(database) == {}


async def test_what_is_being_named_is_not_released_by_another_sidecar(
    database: Database, job: CheckpointJob, busy: asyncio.Event
) -> None:
    here, there = (registry_of(database, checkpoints=str(job.path)) for _ in range(2))
    job.publish(1)
    await here.step()

    async def release() -> None:
        async with there.releasing(1), database.write() as session:
            await versions.release(session, 1, 1.0)

    async with here.keeping(1) as path:
        releasing = await begun(release(), busy)
        async with database.write() as session:
            await versions.keep(session, 1, str(path), "alias", 1.0)
            await aliases.point(session, "champion", 1, None, 1.0)
    with pytest.raises(versions.InUse, match="champion"):
        await releasing
    assert await kept_by(database) == {1: "alias"}


async def test_what_is_being_kept_by_hand_is_not_released_for_a_newer_one_by_another_sidecar(
    database: Database, job: CheckpointJob, busy: asyncio.Event
) -> None:
    here, there = (registry_of(database, checkpoints=str(job.path), keep_newest=1) for _ in range(2))
    job.publish(1)
    await here.step()
    await there.step()
    job.publish(2)

    async def look() -> None:
        await there.step()

    async with here.keeping(1) as path:
        looking = await begun(look(), busy)
        async with database.write() as session:
            await versions.keep(session, 1, str(path), "hand", 1.0)
    await looking
    assert await kept_by(database) == {1: "hand", 2: "sight"}


async def test_one_that_is_cancelled_holds_the_folder_until_its_thread_has_ended(
    database: Database, job: CheckpointJob, busy: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = (registry_of(database, checkpoints=str(job.path), keep_newest=0) for _ in range(2))
    job.publish(1)
    await here.step()
    linking, go_on, place = asyncio.Event(), threading.Event(), keeping.place
    loop = asyncio.get_running_loop()

    def slow(*where: Any, **how: Any) -> None:
        loop.call_soon_threadsafe(linking.set)
        go_on.wait(30)
        place(*where, **how)

    async def keep(registry: VersionRegistry) -> None:
        async with registry.keeping(1):
            pass

    monkeypatch.setattr(keeping, "place", slow)
    keeping_here = await begun(keep(here), linking)
    keeping_here.cancel()
    monkeypatch.setattr(keeping, "place", place)
    keeping_there = await begun(keep(there), busy)
    assert busy.is_set()
    go_on.set()
    await keeping_there
    with pytest.raises(asyncio.CancelledError):
        await keeping_here
    keeping.files_of(job.path / "kept" / "1")


async def test_where_the_folder_cannot_be_written_versions_are_found_and_what_is_kept_stays(
    database: Database, job: CheckpointJob
) -> None:
    registry, started = (registry_of(database, checkpoints=str(job.path), keep_newest=1) for _ in range(2))
    job.publish(1)
    await registry.step()
    lock = job.path / "kept" / ".slipstream.lock"
    lock.unlink()
    lock.mkdir()
    job.publish(2)
    await registry.step()
    job.publish(3)
    await started.step()
    async with database.read() as session:
        assert set(await versions.known(session)) == {1, 2, 3}
    assert await kept_by(database) == {1: "sight"}
