"""TrainingRunner where its sidecar is stopped, hung or failing, and where the program ends or forks."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from loops import RunLoop
from serving import serving, until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import slipstream_client as slipstream

ALWAYS = slipstream.SamplingRate(1)
CALLS = 40
QUEUE = 5


@asynccontextmanager
async def stopped() -> AsyncIterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{free.getsockname()[1]}"


@asynccontextmanager
async def hung() -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@asynccontextmanager
async def failing() -> AsyncIterator[str]:
    def fail(request: Request) -> Response:
        return JSONResponse({"error": {"message": "scripted"}}, 500)

    async with serving(Starlette(routes=[Route("/{path:path}", fail, methods=["GET", "POST"])])) as url:
        yield url


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sidecar", [stopped, hung, failing])
async def test_the_agent_works_and_nothing_grows(sidecar: Any, caplog: pytest.LogCaptureFixture) -> None:
    before = threading.active_count()
    async with sidecar() as url:
        slipstream.configure(url, timeout=0.2)
        runner = slipstream.TrainingRunner(ALWAYS, lambda run: 0.5, queue=QUEUE, concurrency=2)
        agent = runner.agent(lambda number: number)
        async_agent = runner.agent(_echo)
        async with runner:
            for number in range(0, CALLS, 2):
                assert agent(number) == number  # while the loop that answers for the sidecar is blocked
                assert await async_agent(number + 1) == number + 1
                assert runner.stats.waiting <= QUEUE
            assert threading.active_count() <= before + 4
            await until(lambda: runner.stats.waiting == 0)
        stats = runner.stats
    assert (stats.calls, stats.selected) == (CALLS, CALLS)
    assert sum(stats.dropped.values()) == CALLS
    assert set(stats.dropped) <= {"queue_full", "sidecar_away"}
    assert stats.dropped["queue_full"] > 0 or sidecar is not hung
    assert (stats.waiting, stats.running, stats.finished, stats.commits) == (0, 0, 0, 0)
    assert all(count == 1 for count in Counter(caplog.messages).values())


async def _echo(number: int) -> int:
    return number


async def test_stop_ends_in_its_time_while_the_sidecar_hangs() -> None:
    async with hung() as url:
        slipstream.configure(url, timeout=0.2)
        runner = slipstream.TrainingRunner(ALWAYS, lambda run: 0.5, concurrency=1)
        await asyncio.to_thread(runner.start)
        agent = runner.agent(lambda number: number)
        for number in range(200):  # which would take forty seconds, one timeout after the other
            agent(number)
        await asyncio.to_thread(runner.stop, 0.1)
    stats = runner.stats
    assert stats.dropped["stopped"] > 150
    assert sum(stats.dropped.values()) == 200
    assert (stats.waiting, stats.running) == (0, 0)


async def test_stop_drops_the_runs_that_do_not_end_in_its_time(run_loop: RunLoop) -> None:
    go_on = threading.Event()
    async with run_loop(selection={"sampling": {"rate": 0.0}}) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(ALWAYS, lambda run: 0.5, repeat_time=3, concurrency=2)

        @runner.agent
        def agent() -> None:
            if slipstream.is_replay():
                go_on.wait(30)

        runner._start(None)
        with slipstream.mark(task_id="a"):
            agent()
        await until(lambda: runner.stats.running == 2)
        await asyncio.to_thread(runner.stop, 0.1)
        group = (await loop.client.get("/runs/a")).json()
        go_on.set()
    assert runner.stats.failed == {"stopped": 3}
    assert [run["state"] for run in group["runs"]] == ["failed"] * 3
    assert [run["error"] for run in group["runs"]] == ["the runner stopped"] * 3


async def test_a_program_that_ends_waits_no_longer_than_it_says_for_a_sidecar_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run's end and the commit have no time of their own, such as two times 30 seconds here."""
    monkeypatch.setattr("slipstream_client.training.runner.AT_EXIT", 0.5)
    sidecar, answers = Forgetful(lost=0), asyncio.Event()
    async with serving(sidecar.app()) as url:
        slipstream.configure(url, timeout=30)
        runner = slipstream.TrainingRunner(ALWAYS, lambda run: 1.0, repeat_time=1)
        runner._start(None)
        agent = runner.agent(lambda number: number)
        agent(1)
        await until(lambda: runner.stats.finished == 1)
        sidecar.answers = answers
        agent(2)
        await until(lambda: runner.stats.running == 1)
        try:
            async with asyncio.timeout(20):
                await asyncio.to_thread(runner._at_exit)
        finally:
            answers.set()
    assert runner.stats.finished == 1


def test_stop_on_the_loop_that_runs_need_is_refused() -> None:
    async def main() -> None:
        slipstream.configure("http://127.0.0.1:1")
        runner = slipstream.TrainingRunner(ALWAYS)
        async with runner:
            with pytest.raises(RuntimeError, match="leave `async with` instead"):
                runner.stop()

    asyncio.run(main())


def test_with_in_async_code_works_and_says_what_is_better(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        slipstream.configure("http://127.0.0.1:1")
        with slipstream.TrainingRunner(ALWAYS):
            pass

    asyncio.run(main())
    assert "use `async with`" in caplog.text


class Forgetful:
    """A sidecar whose answers to the ends of runs get lost, as one that restarts.

    Attributes:
        answers: what ends runs and commits waits for.
    """

    def __init__(self, lost: int) -> None:
        self.lost = lost
        self.answers = asyncio.Event()
        self.answers.set()
        self.ends: list[dict[str, Any]] = []

    async def open(self, request: Request) -> Response:
        task_id = request.path_params["task_id"]
        run = {"run_id": 0, "base_url": f"/runs/{task_id}/0/v1"}
        return JSONResponse({"task_id": task_id, "group_id": "g", "runs": [run]}, 201)

    async def state(self, request: Request) -> Response:
        run = {
            "run_id": 0,
            "state": "scored" if self.ends else "open",
            "msg_ids": ["m"],
            "policy_version": 3,
            "error": None,
        }
        return JSONResponse({"runs": [run]})

    async def finish(self, request: Request) -> Response:
        await self.answers.wait()
        if self.ends:
            return JSONResponse({"error": {"message": "it has ended", "code": "run_closed"}}, 409)
        self.ends.append(await request.json())
        if self.lost:
            self.lost -= 1
            return JSONResponse({"error": {"message": "lost"}}, 502)
        return JSONResponse({"state": "scored", "msg_ids": ["m"], "policy_version": 3})

    async def commit(self, request: Request) -> Response:
        await self.answers.wait()
        return JSONResponse({"commit": 1, "groups": 1, "experiences": 1, "run_again": 0, "lost": 0})

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/runs/{task_id}", self.open, methods=["POST"]),
                Route("/runs/{task_id}", self.state),
                Route("/runs/{task_id}/0/finish", self.finish, methods=["POST"]),
                Route("/commit", self.commit, methods=["POST"]),
            ]
        )


async def test_an_end_whose_answer_was_lost_counts_as_what_the_sidecar_made_of_it() -> None:
    sidecar = Forgetful(lost=1)
    async with serving(sidecar.app()) as url:
        slipstream.configure(url)
        runner = slipstream.TrainingRunner(ALWAYS, lambda run: run.policy_version / 4, repeat_time=1)
        async with runner:
            await runner.agent(_echo)(1)
    assert (runner.stats.finished, runner.stats.failed, runner.stats.commits) == (1, {}, 1)
    assert [end["reward"] for end in sidecar.ends] == [0.75]


PROGRAM = """
import os, sys, threading
import slipstream_client as slipstream

runner = slipstream.TrainingRunner(slipstream.SamplingRate(1), lambda run: 0.5, repeat_time=2)
client = slipstream.openai()

@runner.agent
def agent(question):
    if question == "stuck" and slipstream.is_replay():
        print("replay", file=sys.stderr, flush=True)
        threading.Event().wait()
    messages = [{"role": "user", "content": question}]
    return client.chat.completions.create(model="prod", messages=messages).choices[0].message.content

runner.start()
"""


async def _ended(url: str, program: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM + program),
        env={**os.environ, "SLIPSTREAM_URL": url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(90):
        out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    assert b"Traceback" not in error, error.decode()
    return out.decode()


@pytest.mark.slow
async def test_a_program_that_ends_without_stop_delivers_what_it_can(run_loop: RunLoop) -> None:
    async with run_loop(selection={"sampling": {"rate": 0.0}}) as loop:
        program = "import slipstream_client.training.runner as r; r.AT_EXIT = 60\n"
        program += "with slipstream.mark(task_id='a'): print(agent('hello'))"
        assert await _ended(loop.url, program) == "echo: hello\n"
        group = (await loop.client.get("/runs/a")).json()
    assert [run["reward"] for run in group["runs"]] == [0.5, 0.5]
    assert group["state"] == "delivered"


@pytest.mark.slow
async def test_a_replay_that_is_stuck_does_not_keep_a_program_from_ending(run_loop: RunLoop) -> None:
    async with run_loop(selection={"sampling": {"rate": 0.0}}) as loop:
        program = "import slipstream_client.training.runner as r; r.AT_EXIT = 0.5\nprint(agent('stuck'))"
        assert await _ended(loop.url, program) == "echo: stuck\n"


@pytest.mark.slow
async def test_a_forked_child_runs_its_agent_and_replays_nothing(run_loop: RunLoop) -> None:
    program = """
if pid := os.fork():
    os.waitpid(pid, 0)
    print(agent("parent"))
    runner.stop()
    print(runner.stats.finished, runner.stats.failed)
else:
    print(agent("child"), runner.stats.calls, flush=True)
    runner.stop()
    os._exit(0)
"""
    async with run_loop(selection={"sampling": {"rate": 0.0}}) as loop:
        found = await _ended(loop.url, program)
    assert found == "echo: child 0\necho: parent\n2 {}\n"
