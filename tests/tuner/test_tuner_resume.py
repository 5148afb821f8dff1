"""A tuning that is stopped or killed, and named again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from serving import serving, until
from starlette.requests import Request
from starlette.responses import Response
from tuned import LearningExplorer, dataset, questions, tuned

from slipstream_client.tuner.errors import TunerError

_HERE = Path(__file__).parent


class Tuning:
    """The script as a process, each time anew."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.process: asyncio.subprocess.Process

    async def start(self, steps: int) -> None:
        path = os.pathsep.join(map(str, (_HERE, _HERE.parent / "support", *filter(None, sys.path))))
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(_HERE / "tuning_script.py"),
            str(steps),
            self._url,
            env={**os.environ, "PYTHONPATH": path},
        )

    async def ended(self) -> int:
        return await asyncio.wait_for(self.process.wait(), 60)


@asynccontextmanager
async def tuning(explorer: LearningExplorer, folder: Path) -> AsyncIterator[Tuning]:
    dataset(folder / "d", questions(8))
    async with serving(explorer.app()) as url:
        run = Tuning(url)
        yield run
        if run.process.returncode is None:
            run.process.kill()
            await run.process.wait()


def asked(explorer: LearningExplorer) -> list[str]:
    return [chat["messages"][0]["content"] for chat in explorer.chats]


@pytest.mark.slow
async def test_killed_amid_a_step_that_step_is_run_again(folder: Path) -> None:
    explorer = LearningExplorer()

    async def then_hold(request: Request) -> Response:
        response = await LearningExplorer._learned(explorer, request)
        explorer.hold.clear()
        return response

    explorer.commit_route = then_hold
    async with tuning(explorer, folder) as run:
        await run.start(steps=3)
        await until(lambda: len(explorer.chats) == 8, 60)  # the second step's are waiting
        run.process.kill()
        assert await run.ended() == -signal.SIGKILL
        explorer.commit_route = explorer._learned
        explorer.hold.set()
        await run.start(steps=3)
        assert await run.ended() == 0

    assert sorted(asked(explorer)[4:8]) == sorted(asked(explorer)[8:12])
    assert [sorted(map(len, groups.values())) for groups in explorer.trained] == [[2, 2]] * 3
    told = [msg_id for each in explorer.feedbacks for msg_id in each["msg_ids"]]
    assert len(told) == len(set(told)) == 12


@pytest.mark.slow
@pytest.mark.parametrize("route", ["feedback_route", "commit_route"])
async def test_killed_amid_a_delivery_what_was_begun_is_ended(folder: Path, route: str) -> None:
    explorer = LearningExplorer()
    plain, times = getattr(explorer, route), 0

    async with tuning(explorer, folder) as run:

        async def carry_out_and_kill(request: Request) -> Response:
            nonlocal times
            response: Response = await plain(request)
            times += 1
            if times == (2 if route == "feedback_route" else 1):
                run.process.kill()  # before the answer
            return response

        setattr(explorer, route, carry_out_and_kill)
        await run.start(steps=2)
        assert await run.ended() == -signal.SIGKILL
        assert len(explorer.chats) == 4
        await run.start(steps=2)
        assert await run.ended() == 0

    assert len(explorer.chats) == 8  # nothing was run again
    whole = [groups for groups in explorer.trained if groups]
    assert [sorted(map(len, groups.values())) for groups in whole] == [[2, 2]] * 2
    trained = [msg_id for groups in whole for runs in groups.values() for ids in runs.values() for msg_id in ids]
    assert len(trained) == len(set(trained)) == 8


@pytest.mark.slow
async def test_ctrl_c_ends_it_at_once_whatever_the_workflow_does(folder: Path) -> None:
    explorer = LearningExplorer()
    explorer.hold.clear()
    async with tuning(explorer, folder) as run:
        await run.start(steps=1)
        await until(lambda: len(explorer.chats) == 4, 60)
        run.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(10):
            assert await run.ended() == -signal.SIGINT
        explorer.hold.set()
        await run.start(steps=1)
        assert await run.ended() == 0
    assert [sorted(map(len, groups.values())) for groups in explorer.trained] == [[2, 2]]


async def test_an_experiment_that_is_done_is_only_looked_at(folder: Path) -> None:
    explorer = LearningExplorer()
    data = dataset(folder / "d", questions(4))
    first = await tuned(explorer, train_dataset=data, eval_dataset=data)
    asked_before = len(explorer.chats)
    assert await tuned(explorer, train_dataset=data, eval_dataset=data) == first
    assert len(explorer.chats) == asked_before


async def test_more_steps_go_on_where_it_ended(folder: Path) -> None:
    explorer = LearningExplorer()
    await tuned(explorer, train_dataset=dataset(folder / "d", questions(4), total_steps=1))
    result = await tuned(explorer, train_dataset=dataset(folder / "d", questions(4), total_steps=3))
    assert [step["step"] for step in result.steps] == [1, 2, 3]
    assert [content[-1] for content in sorted(asked(explorer)[4:8])] == list("2233")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"algorithm": {"learning_rate": 1e-5}}, "algorithm.learning_rate: 1e-06 before, 1e-05 now"),
        ({"size": 3}, "algorithm.group_size: 2 before, 3 now"),
        ({"seed": 4}, "seed: None before, 4 now"),
    ],
)
async def test_another_configuration_is_refused(folder: Path, fields: dict[str, Any], said: str) -> None:
    explorer = LearningExplorer()
    data = dataset(folder / "d", questions(2))
    await tuned(explorer, train_dataset=data)
    with pytest.raises(TunerError, match=said):
        await tuned(explorer, train_dataset=data, **fields)


async def test_another_dataset_is_refused(folder: Path) -> None:
    explorer = LearningExplorer()
    await tuned(explorer, train_dataset=dataset(folder / "d", questions(2)))
    other = dataset(folder / "other", [*questions(1), {"question": "another"}])
    with pytest.raises(TunerError, match=r"train_dataset: '2 tasks, sha256 .* before, '2 tasks, sha256 .* now"):
        await tuned(explorer, train_dataset=other)
    await tuned(explorer, train_dataset=dataset(folder / "moved", questions(2)))  # where it lies does not matter


async def test_two_at_once_are_one_too_many(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream_client.tuner.progress._LOCK_WITHIN", 0.2)
    explorer = LearningExplorer()
    explorer.hold.clear()
    data = dataset(folder / "d", questions(2))
    first = asyncio.create_task(tuned(explorer, train_dataset=data))
    await until(lambda: len(explorer.chats) == 4)
    with pytest.raises(TunerError, match="experiment is being tuned by another process"):
        await tuned(LearningExplorer(), train_dataset=data)
    explorer.hold.set()
    await first
