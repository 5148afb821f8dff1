"""A checkpoint of the Trainer answers users: found, kept, put into the lane, and served by what follows that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from checkpoint_job import CheckpointJob, weights
from loops import RunLoop
from scripted import ScriptedExplorer
from serving import serving, until
from stores import ON_BOTH_STORES

from slipstream.versions import lanes

PLAN = {"steps": [0.5, 0.95], "min_time": 0, "min_units": 5}


class FollowingLane(ScriptedExplorer):
    """An Explorer that serves the step that its directory's marker names, as long as it may load it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(answer="the lane says {n}")
        self.directory = directory
        self.loads = True
        self.model = "/kept/policy"

    def load(self) -> bool:
        """Load what is to be loaded. Returns whether there was something."""
        newest = lanes.newest(self.directory)
        if newest is None or newest.step == self.version:
            return False
        self.version = newest.step
        return True


@ON_BOTH_STORES
async def test_a_version_is_served_once_the_lane_has_loaded_it_and_no_more_after_it_was_taken_back(
    run_loop: RunLoop, tmp_path: Path
) -> None:
    job, directory = CheckpointJob(tmp_path / "job"), tmp_path / "lane"
    lane = FollowingLane(directory)
    async with serving(lane.app()) as url:
        section = {
            "mode": "on",
            "lane": {"base_url": f"{url}/v1", "directory": str(directory)},
            "checkpoints": str(job.path),
            "keep_newest": 1,
        }
        async with run_loop(serving=section) as loop:

            async def get(path: str) -> Any:
                return (await loop.client.get(path)).json()

            async def state(version: int) -> str:
                return str((await get(f"/versions/{version}")).get("state"))

            async def opened(version: int) -> int:
                answer = await loop.client.post("/rollouts", json={"version": version, **PLAN})
                assert answer.status_code in (200, 201), answer.text
                return int(answer.json()["id"])

            async def answered_by_lane() -> list[bool]:
                sessions = [{"x-slipstream-session-id": f"s{number}"} for number in range(12)]
                answers = [await loop.chat("hello", session) for session in sessions]
                return [each["choices"][0]["message"]["content"].startswith("the lane") for each in answers]

            for version in (7, 8, 9):
                job.publish(version)
                await until(lambda version=version: _is(state, version, "kept"))
            job.prune(7)
            job.prune(8)
            rollout = await opened(9)
            await until(lambda: lanes.newest(directory) is not None)
            assert weights(directory / "global_step_1") == "weights of 9"
            assert await state(9) == "candidate"
            refused = await loop.client.delete("/versions/9/keep")
            assert refused.status_code == 409, "users may be answered by it"
            assert not any(await answered_by_lane()), "the lane has not loaded it yet"
            assert lane.load()

            async def some_by_lane() -> list[bool] | None:
                by_lane = await answered_by_lane()
                return by_lane if any(by_lane) else None

            assert not all(await until(some_by_lane))
            assert (await loop.client.post(f"/rollouts/{rollout}/abort")).status_code == 200
            assert not any(await answered_by_lane())
            assert await state(9) == "kept"


async def _is(state: Any, version: int, wanted: str) -> bool:
    return bool(await state(version) == wanted)
