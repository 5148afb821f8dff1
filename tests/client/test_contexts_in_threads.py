"""Threads, thread pools and tasks that an agent starts carry its context, and no other's."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import multiprocessing
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing.pool import Pool, ThreadPool
from typing import Any

import anyio
import anyio.to_thread
import pytest

import slipstream_client as slipstream
from slipstream_client.context import Context, Replay, entered
from slipstream_client.side_effects.recording import GuardedReplay, Recording

pytestmark = pytest.mark.usefixtures("instrumented")


def labels() -> tuple[str, ...]:
    return slipstream.current().labels


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def in_thread(function: Callable[[], Any]) -> Any:
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_a_thread_carries_the_context_of_whoever_starts_it() -> None:
    with slipstream.mark("a"):
        assert in_thread(labels) == ("a",)
        assert in_thread(lambda: in_thread(labels)) == ("a",)
    assert in_thread(labels) == ()


def test_a_thread_with_a_run_of_its_own_carries_it_too() -> None:
    class Agent(threading.Thread):
        found: tuple[str, ...] = ()

        def run(self) -> None:
            self.found = labels()

    with slipstream.mark("a"):
        agent = Agent()
        agent.start()
    agent.join()
    assert agent.found == ("a",)


def test_a_thread_that_has_ended_is_freed_at_once() -> None:
    with slipstream.mark("a"):
        thread = threading.Thread(target=labels)
        thread.start()
        thread.join()
        reference = weakref.ref(thread)
        gc.disable()
        try:
            del thread
            assert reference() is None
        finally:
            gc.enable()


def test_marks_in_a_thread_stay_there() -> None:
    def agent() -> tuple[str, ...]:
        with slipstream.mark("inner"):
            return labels()

    with slipstream.mark("outer"):
        assert in_thread(agent) == ("outer", "inner")
        assert labels() == ("outer",)


def test_a_job_carries_the_context_of_whoever_submits_it(pool: ThreadPoolExecutor) -> None:
    assert pool.submit(labels).result() == ()  # the worker thread is there already
    with slipstream.mark("a"):
        assert pool.submit(labels).result() == ("a",)
        assert list(pool.map(lambda _: labels(), range(2))) == [("a",)] * 2
    assert pool.submit(labels).result() == ()


def test_a_worker_that_a_replay_has_started_serves_production_afterwards(pool: ThreadPoolExecutor) -> None:
    with entered(Context(replay=Replay("order-17", 0))):
        assert pool.submit(slipstream.is_replay).result()
    assert not pool.submit(slipstream.is_replay).result()
    with slipstream.mark("a"):
        assert pool.submit(slipstream.is_replay).result() is False
        assert pool.submit(labels).result() == ("a",)


def test_a_job_of_a_process_pool_carries_its_context_and_the_worker_none() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as processes:
        guarded = GuardedReplay("order-17", 0, Recording())
        with entered(Context("order-17", labels=("a",), metadata={"reference": 42}, replay=guarded)):
            found = processes.submit(slipstream.current).result()
        assert found == Context("order-17", None, ("a",), {"reference": 42}, replay=Replay("order-17", 0))
        assert processes.submit(slipstream.current).result() == Context()
        with slipstream.mark("b"):
            assert list(processes.map(len, ["xy"])) == [2]
            assert processes.submit(slipstream.current).result().labels == ("b",)


def test_a_context_that_a_job_leaves_open_does_not_reach_the_next_job(pool: ThreadPoolExecutor) -> None:
    def careless() -> None:
        slipstream.mark("left open").__enter__()

    with slipstream.mark("a"):
        pool.submit(careless).result()
    assert pool.submit(labels).result() == ()


def test_a_callback_of_a_job_carries_the_context_of_whoever_added_it(pool: ThreadPoolExecutor) -> None:
    go, seen = threading.Event(), []
    job = pool.submit(go.wait, 10)
    job.add_done_callback(lambda done: seen.append((done.result(), labels())))
    with slipstream.mark("a"):
        job.add_done_callback(lambda done: seen.append((done.result(), labels())))
        go.set()
        pool.submit(labels).result()  # the one worker is done with the job before
    assert seen == [(True, ()), (True, ("a",))]


def fail(*_: object) -> None:
    raise ValueError("no")


@pytest.fixture(params=["threads", "processes"])
def shared_pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    """A pool of the program's, which production uses too."""
    with ThreadPool(1) if request.param == "threads" else multiprocessing.get_context("fork").Pool(1) as pool:
        yield pool


SUBMITS: list[Callable[..., Any]] = [
    lambda pool, job, **callbacks: pool.apply_async(job, ("x",), **callbacks),
    lambda pool, job, **callbacks: pool.map_async(job, ["x"], **callbacks),
    lambda pool, job, **callbacks: pool.starmap_async(job, [("x",)], **callbacks),
]


@pytest.mark.parametrize("submit", SUBMITS, ids=["apply", "map", "starmap"])
@pytest.mark.parametrize(("job", "callback"), [(len, "callback"), (fail, "error_callback")])
def test_a_callback_of_a_pools_job_belongs_to_the_replay_that_submitted_it(
    shared_pool: Pool, submit: Callable[..., Any], job: Callable[..., Any], callback: str
) -> None:
    mailed, called = [], threading.Event()

    @slipstream.tool(side_effects=True)
    def mail(result: object) -> None:
        mailed.append(result)

    def called_back(result: object) -> None:
        mail(result)
        called.set()

    with slipstream.replay("order-17", 0) as run:
        submit(shared_pool, job, **{callback: called_back})
        assert called.wait(10)
    assert mailed == []
    assert [effect.tool for effect in run.side_effects] == ["mail"]
    called.clear()
    submit(shared_pool, job, **{callback: called_back})  # production's
    assert called.wait(10)
    assert len(mailed) == 1


def test_a_callback_that_is_blocked_leaves_the_pool_to_production(
    shared_pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    @slipstream.tool(side_effects=True, blocked="raise")
    def mail(result: object) -> None:
        raise AssertionError("blocked")

    with slipstream.replay("order-17", 0):
        shared_pool.apply_async(len, ("x",), callback=mail)
    assert shared_pool.apply_async(len, ("xy",)).get(10) == 2
    assert "SideEffectBlocked" in caplog.text


def test_jobs_keep_their_arguments_results_and_errors(pool: ThreadPoolExecutor) -> None:
    with slipstream.mark("a"):
        named = {"function": 2, "self": 3, "instance": 4}
        assert pool.submit(dict, {"x": 1}, **named).result() == {"x": 1, **named}
        with pytest.raises(ZeroDivisionError):
            pool.submit(lambda: 1 / 0).result()


def test_a_framework_that_copies_the_context_itself_is_in_nobodys_way(pool: ThreadPoolExecutor) -> None:
    """As LangChain's pool does for tools that run side by side."""

    class CopyingPool(ThreadPoolExecutor):
        def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
            return super().submit(partial(contextvars.copy_context().run, function, *args, **kwargs))

    with CopyingPool(1) as copying:
        with slipstream.mark("a"):
            assert copying.submit(labels).result() == ("a",)
        assert copying.submit(labels).result() == ()
        with slipstream.mark("b"):
            contexts = [contextvars.copy_context() for _ in range(2)]
            assert list(pool.map(lambda context: context.run(labels), contexts)) == [("b",)] * 2


async def test_asyncio_carries_it_into_tasks_and_threads(pool: ThreadPoolExecutor) -> None:
    async def task() -> tuple[str, ...]:
        await asyncio.sleep(0)
        return labels()

    loop = asyncio.get_running_loop()
    with slipstream.mark("a"):
        found = [
            await asyncio.create_task(task()),
            await asyncio.to_thread(labels),
            await loop.run_in_executor(None, labels),
            await loop.run_in_executor(pool, labels),
        ]
        left = asyncio.create_task(task())
    assert found == [("a",)] * 4
    assert await left == ()  # the block had ended when it came to its turn
    assert await loop.run_in_executor(pool, labels) == ()
    assert await asyncio.to_thread(labels) == ()


def test_a_thread_of_anyio_that_a_replay_has_started_does_a_users_job_as_production(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sent: list[str] = []

    @slipstream.tool(side_effects=True)
    def send(to: str) -> int:
        sent.append(to)
        return threading.get_ident()

    async def serve() -> None:
        in_replay, served = anyio.Event(), anyio.Event()

        async def user() -> None:
            await in_replay.wait()
            assert await anyio.to_thread.run_sync(send, "user") in threads
            served.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(user)
            with slipstream.replay("order-17", 0):
                threads.append(await anyio.to_thread.run_sync(threading.get_ident))
                await anyio.to_thread.run_sync(send, "replay")
                in_replay.set()
                await served.wait()

    threads: list[int] = []
    anyio.run(serve)
    assert sent == ["user"]
    assert caplog.messages == []


async def test_many_agents_in_one_pool_do_not_mix() -> None:
    def agent(number: int) -> bool:
        with slipstream.mark(f"inner-{number}"):
            return in_thread(labels) == (str(number), f"inner-{number}")

    async def call(number: int) -> bool:
        with slipstream.mark(str(number)):
            return await asyncio.get_running_loop().run_in_executor(pool, agent, number)

    with ThreadPoolExecutor(8) as pool:
        assert all(await asyncio.gather(*(call(number) for number in range(200))))
