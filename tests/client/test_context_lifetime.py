"""The end of a block ends what its calls carry, wherever that was copied to; a replay's leftovers stay blocked."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import queue
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.pool import ApplyResult, Pool, ThreadPool
from typing import Any, TypeVar

import pytest
import urllib3
from loops import Loop, RunLoop
from serving import until

import slipstream_client as slipstream

T = TypeVar("T")


def labels() -> tuple[str, ...]:
    return slipstream.current().labels


class QueueWorker:
    """A thread that takes jobs from a queue of its own, started by the first call that needs it."""

    def __init__(self) -> None:
        self._jobs: queue.Queue[tuple[Callable[[], Any], Future[Any]] | None] = queue.Queue()
        self._thread: threading.Thread | None = None

    def put(self, job: Callable[[], T]) -> Future[T]:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work)
            self._thread.start()
        done: Future[T] = Future()
        self._jobs.put((job, done))
        return done

    def ask(self, job: Callable[[], T]) -> T:
        return self.put(job).result(20)

    def _work(self) -> None:
        while (taken := self._jobs.get()) is not None:
            job, done = taken
            try:
                done.set_result(job())
            except Exception as error:  # noqa: BLE001 - the caller's
                done.set_exception(error)

    def close(self) -> None:
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(10)


class DequeWorker(QueueWorker):
    """The same on a deque and a condition, of which the client knows nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs = Handmade()  # type: ignore[assignment]


class Handmade:
    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._changed = threading.Condition()

    def put(self, item: Any) -> None:
        with self._changed:
            self._items.append(item)
            self._changed.notify()

    def get(self) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._items)
            return self._items.popleft()


@pytest.fixture
def worker() -> Iterator[QueueWorker]:
    worker = QueueWorker()
    yield worker
    worker.close()


@pytest.fixture
def paid() -> list[int]:
    return []


@pytest.fixture
def pay(paid: list[int]) -> Callable[[int], str]:
    @slipstream.tool(side_effects=True, blocked="raise")
    def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    return pay


@pytest.mark.usefixtures("instrumented")
def test_one_users_mark_does_not_reach_the_calls_of_the_others_that_a_worker_serves(worker: QueueWorker) -> None:
    with slipstream.mark("first", task_id="order-1"):
        assert worker.ask(labels) == ("first",)
    for user in ("second", "third"):
        with slipstream.mark(user):
            assert worker.ask(slipstream.current) == slipstream.current().__class__()


def test_everything_that_copies_context_variables_loses_a_mark_with_its_block() -> None:
    with slipstream.mark("a"):
        copied = contextvars.copy_context()
        assert copied.run(labels) == ("a",)
    assert copied.run(labels) == ()
    assert copied.run(lambda: slipstream.current().metadata) == {}


async def test_tasks_and_timers_lose_a_mark_with_its_block() -> None:
    over, seen = asyncio.Event(), []

    async def task() -> None:
        seen.append(slipstream.current())
        await over.wait()
        seen.append(slipstream.current())

    with slipstream.mark("a", task_id="order-17", reference="42"), slipstream.never():
        running = asyncio.create_task(task())
        timer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.01, lambda: timer.set_result(slipstream.current()))
        await asyncio.sleep(0)
    over.set()
    await running
    nothing = slipstream.current()
    assert [(one.labels, one.never) for one in seen] == [(("a",), True), ((), False)]
    assert (seen[1], await timer) == (nothing, nothing)


@pytest.mark.usefixtures("instrumented")
def test_the_end_of_an_inner_block_leaves_the_outer_one_and_the_end_of_an_outer_one_the_inner() -> None:
    with slipstream.mark("outer", task_id="order-17", reference="1"):
        with slipstream.mark("inner", reference="2"):
            copied = contextvars.copy_context()
            assert copied.run(labels) == ("outer", "inner")
        assert copied.run(labels) == ("outer",)
        assert copied.run(lambda: slipstream.current().metadata) == {"reference": "1"}

        entered, over = threading.Event(), threading.Event()
        seen: list[Any] = []

        def in_thread() -> None:
            with slipstream.mark("own"):
                seen.append(slipstream.current())
                entered.set()
                over.wait(10)
                seen.append(slipstream.current())
            seen.append(slipstream.current())

        thread = threading.Thread(target=in_thread)
        thread.start()
        assert entered.wait(10)
    over.set()
    thread.join(10)
    found = [(one.task_id, one.labels) for one in seen]
    assert found == [("order-17", ("outer", "own")), (None, ("own",)), (None, ())]


def test_a_mark_ends_also_where_its_generator_ends_in_another_context() -> None:
    def request() -> Iterator[contextvars.Context]:
        with slipstream.mark("request"):
            yield contextvars.copy_context()

    here, generator = contextvars.Context(), request()
    copied = here.run(next, generator)
    assert copied.run(labels) == ("request",)
    assert contextvars.Context().run(list, generator) == []
    assert (copied.run(labels), here.run(labels)) == ((), ())


def test_an_observed_call_ends_for_what_it_leaves_behind() -> None:
    runner = slipstream.TrainingRunner(slipstream.SamplingRate(0))
    left: list[contextvars.Context] = []

    @runner.agent
    def agent() -> None:
        left.append(contextvars.copy_context())
        assert slipstream.current().call is not None

    @runner.agent
    def steps() -> Iterator[int]:
        for number in range(2):
            left.append(contextvars.copy_context())
            assert slipstream.current().call is not None
            yield number

    slipstream.configure("http://127.0.0.1:9", timeout=1)
    with runner:
        agent()
        for _ in steps():
            assert slipstream.current().call is None
        assert len(left) == 3
        assert [context.run(slipstream.current).call for context in left] == [None] * 3


@pytest.mark.usefixtures("instrumented")
def test_a_queue_worker_that_began_in_a_replay_serves_production_afterwards(
    worker: QueueWorker, paid: list[int], pay: Callable[[int], str]
) -> None:
    with slipstream.replay("order-17", 0):
        assert worker.ask(slipstream.is_replay)
        with pytest.raises(slipstream.SideEffectBlocked):
            worker.ask(lambda: pay(1))
    with slipstream.mark("user"):
        assert worker.ask(lambda: pay(2)) == "paid"
    assert not worker.ask(slipstream.is_replay)
    assert paid == [2]


@pytest.mark.usefixtures("instrumented")
def test_what_a_replay_put_into_a_queue_stays_its_own_after_its_end(
    worker: QueueWorker, paid: list[int], pay: Callable[[int], str]
) -> None:
    under_way, go = threading.Event(), threading.Event()
    with slipstream.replay("order-17", 0):
        worker.put(lambda: (under_way.set(), go.wait(10)))
        assert under_way.wait(10)
        late = worker.put(lambda: pay(1))
    go.set()
    with pytest.raises(slipstream.SideEffectBlocked, match=r"run 0 of task order-17 left behind"):
        late.result(10)
    assert worker.ask(lambda: pay(2)) == "paid"
    assert paid == [2]


@pytest.mark.usefixtures("instrumented")
def test_a_leftover_that_takes_a_connection_from_a_pool_repeats_no_write(
    paid: list[int], pay: Callable[[int], str]
) -> None:
    """Pools are queues that were filled outside of any replay, and the leftover is no worker for that."""
    connections = urllib3.HTTPConnectionPool("127.0.0.1", 9, maxsize=1, block=True)
    plain: queue.Queue[None] = queue.Queue()
    stack: queue.Queue[None] = queue.LifoQueue()
    for _ in range(2):
        plain.put(None)
    stack.put(None)

    def ask() -> None:
        with pytest.raises(urllib3.exceptions.MaxRetryError):
            connections.request("GET", "/", retries=0)

    over, outcomes = threading.Event(), []

    def mail() -> None:
        try:
            outcomes.append(pay(1))
        except slipstream.SideEffectBlocked:
            outcomes.append("blocked")

    def mail_after(take: Callable[[], Any]) -> None:
        over.wait(10)
        take()
        mail()

    def mail_after_stack() -> None:
        over.wait(10)
        stack.get()
        mail()

    def mail_by_timer() -> None:
        over.wait(10)
        plain.get()
        mail()

    with slipstream.replay("order-17", 0):
        left = [threading.Thread(target=mail_after, args=(take,)) for take in (ask, lambda: plain.get())]
        left += [threading.Thread(target=mail_after_stack), threading.Timer(0, mail_by_timer)]
        for thread in left:
            thread.start()
    over.set()
    for thread in left:
        thread.join(10)
    connections.close()
    assert (outcomes, paid) == (["blocked"] * 4, [])


async def test_a_task_that_takes_a_connection_from_a_pool_repeats_no_write(
    paid: list[int], pay: Callable[[int], str]
) -> None:
    slipstream.instrument_threads()
    stack: asyncio.Queue[None] = asyncio.LifoQueue()
    plain: asyncio.Queue[None] = asyncio.Queue()
    for pool in (stack, plain):
        pool.put_nowait(None)
    over = asyncio.Event()

    async def acquire() -> None:
        await plain.get()

    async def mail_after(take: Callable[[], Any]) -> None:
        await over.wait()
        await take()
        pay(1)

    async def mail_after_stack() -> None:
        await over.wait()
        await stack.get()
        pay(1)

    with slipstream.replay("order-17", 0):
        left = [asyncio.create_task(mail_after(acquire)), asyncio.create_task(mail_after_stack())]
    over.set()
    outcomes = await asyncio.gather(*left, return_exceptions=True)
    slipstream.uninstrument_threads()
    assert ([type(outcome) for outcome in outcomes], paid) == ([slipstream.SideEffectBlocked] * 2, [])


@pytest.mark.usefixtures("instrumented")
def test_a_users_job_that_a_worker_of_a_running_replay_takes_is_an_error_in_the_log(
    worker: QueueWorker, paid: list[int], pay: Callable[[int], str], caplog: pytest.LogCaptureFixture
) -> None:
    with slipstream.replay("order-17", 3):
        worker.ask(labels)
        assert not caplog.records
        for _ in range(2):
            with pytest.raises(slipstream.SideEffectBlocked):
                contextvars.Context().run(worker.ask, lambda: pay(1))  # as a request that comes meanwhile
        assert [record.levelno for record in caplog.records] == [logging.ERROR]
        assert "run 3 of task order-17 is going on" in caplog.text
    assert worker.ask(lambda: pay(2)) == "paid"
    assert paid == [2]


async def test_an_async_queue_worker_that_began_in_a_replay_serves_production_afterwards(
    paid: list[int], pay: Callable[[int], str]
) -> None:
    jobs: asyncio.Queue[tuple[Callable[[], Any], asyncio.Future[Any]]] = asyncio.Queue()

    async def work() -> None:
        while True:
            job, done = await jobs.get()
            try:
                done.set_result(job())
            except slipstream.SideEffectBlocked as blocked:
                done.set_exception(blocked)

    async def ask(job: Callable[[], Any]) -> Any:
        done = asyncio.get_running_loop().create_future()
        await jobs.put((job, done))
        return await done

    with slipstream.replay("order-17", 0):
        worker = asyncio.create_task(work())
        assert await ask(slipstream.is_replay)
        await asyncio.sleep(0)
        left = asyncio.create_task(ask(lambda: pay(1)))  # not awaited: it comes to its turn after the end
    slipstream.instrument_threads()
    with pytest.raises(slipstream.SideEffectBlocked):
        await left
    assert await ask(lambda: pay(2)) == "paid"
    slipstream.uninstrument_threads()
    worker.cancel()
    assert paid == [2]


@pytest.mark.usefixtures("instrumented")
@pytest.mark.parametrize("pool_of", [ThreadPoolExecutor, ThreadPool])
def test_a_pool_that_began_in_a_replay_serves_production_and_each_replay_as_its_own(
    pool_of: Callable[[int], Any], paid: list[int], pay: Callable[[int], str]
) -> None:
    def ask(job: Callable[[], Any]) -> Any:
        return pool.submit(job).result(10) if isinstance(pool, ThreadPoolExecutor) else pool.apply(job)

    with slipstream.replay("order-17", 0):
        pool = pool_of(1)
        with pytest.raises(slipstream.SideEffectBlocked):
            ask(lambda: pay(1))
    assert ask(lambda: pay(2)) == "paid"
    with slipstream.mark("user"):
        assert ask(labels) == ("user",)
        if isinstance(pool, ThreadPool):
            assert pool.map(lambda _: labels(), range(2)) == [("user",)] * 2
            assert list(pool.imap(lambda _: labels(), range(2))) == [("user",)] * 2
            assert pool.starmap(lambda *_: labels(), [(1, 2)]) == [("user",)]
    with slipstream.replay("order-18", 0), pytest.raises(slipstream.SideEffectBlocked):
        ask(lambda: pay(3))
    assert ask(labels) == ()
    assert paid == [2]
    pool.shutdown() if isinstance(pool, ThreadPoolExecutor) else (pool.terminate(), pool.join())


def test_a_thread_that_a_replay_leaves_behind_repeats_no_write(
    paid: list[int], pay: Callable[[int], str], caplog: pytest.LogCaptureFixture
) -> None:
    """A mail in the background of an agent that has answered, and what it starts in its turn."""
    over, ended = threading.Event(), threading.Event()
    blocked: list[Any] = []

    def attempt() -> None:
        try:
            pay(1)
        except slipstream.SideEffectBlocked as error:
            blocked.append(error)

    def later() -> None:
        over.wait(10)
        attempt()
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join(10)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(attempt).result(10)
        ended.set()

    with slipstream.replay("order-17", 3):
        threading.Thread(target=later).start()
    over.set()
    assert ended.wait(20)
    assert (paid, len(blocked)) == ([], 3)
    assert "run 3 of task order-17 left behind" in caplog.text


@pytest.mark.usefixtures("instrumented")
def test_a_worker_that_the_client_cannot_tell_from_a_leftover_is_refused_and_says_what_to_do(
    paid: list[int], pay: Callable[[int], str], caplog: pytest.LogCaptureFixture
) -> None:
    worker, apart = DequeWorker(), DequeWorker()
    with slipstream.replay("order-17", 0):
        worker.ask(labels)
        contextvars.Context().run(apart.ask, labels)  # as the documentation says
    with pytest.raises(slipstream.SideEffectBlocked, match="Start workers that serve several calls outside of replays"):
        worker.ask(lambda: pay(1))
    job = contextvars.copy_context()
    assert worker.ask(lambda: job.run(pay, 2)) == "paid"
    assert apart.ask(lambda: pay(3)) == "paid"
    assert paid == [2, 3]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    worker.close()
    apart.close()


@pytest.fixture
async def loop(run_loop: RunLoop) -> AsyncIterator[Loop]:
    async with run_loop(selection={"sampling": {"rate": 0.0}}) as loop:
        slipstream.configure(loop.url)
        yield loop


async def test_a_worker_that_began_in_a_runners_replay_gives_production_its_own_answers(
    loop: Loop, worker: QueueWorker, paid: list[int], pay: Callable[[int], str]
) -> None:
    """As an agent whose tools and calls go through a thread of its own; production's worker had ended meanwhile."""

    def call(content: str) -> str:
        with slipstream.openai(max_retries=0) as client:
            messages: Any = [{"role": "user", "content": content}]
            answer = client.chat.completions.create(model="prod", messages=messages)
            return str(answer.choices[0].message.content)

    runner = slipstream.TrainingRunner(slipstream.SamplingRate(1), lambda run: 1.0, repeat_time=1)

    @runner.agent
    def agent(content: str) -> str:
        return worker.ask(lambda: call(content)) if slipstream.is_replay() else call(content)

    async with runner:
        assert await asyncio.to_thread(agent, "hello") == "echo: hello"
        await until(lambda: runner.stats.finished == 1)
        assert await asyncio.to_thread(worker.ask, lambda: call("again")) == "echo: again"
        assert await asyncio.to_thread(worker.ask, lambda: pay(1)) == "paid"
    assert paid == [1]


async def test_a_call_that_a_replay_left_behind_goes_nowhere(loop: Loop) -> None:
    over = asyncio.Event()

    async def late() -> None:
        await over.wait()
        async with slipstream.async_http_client(base_url=loop.url) as client:
            await client.post("/v1/chat/completions", json={"model": "prod", "messages": []})

    before = (await loop.client.get("/metrics")).text
    with slipstream.replay("order-17", 0):
        task = asyncio.create_task(late())
        await asyncio.sleep(0)
    over.set()
    with pytest.raises(slipstream.SlipstreamError, match="run 0 of task order-17 has ended"):
        await task
    after = (await loop.client.get("/metrics")).text
    name = "slipstream_requests_total"
    assert [line for line in after.splitlines() if line.startswith(name)] == [
        line for line in before.splitlines() if line.startswith(name)
    ]


PATCHED: list[tuple[type, str]] = [
    (threading.Thread, "start"),
    (Future, "add_done_callback"),
    (ThreadPoolExecutor, "submit"),
    (ProcessPoolExecutor, "submit"),
    (Pool, "apply_async"),
    (Pool, "_map_async"),
    (Pool, "imap"),
    (Pool, "imap_unordered"),
    (ApplyResult, "__init__"),
    (queue.Queue, "put"),
    (queue.Queue, "get"),
    (asyncio.Queue, "put_nowait"),
    (asyncio.Queue, "get_nowait"),
]


def methods() -> list[Any]:
    return [vars(owner)[name] for owner, name in PATCHED]


def test_a_mark_patches_nothing_and_the_last_one_to_let_go_restores_everything() -> None:
    before = methods()
    with slipstream.mark("a"):
        assert methods() == before
    slipstream.instrument_threads()
    patched = methods()
    assert not set(patched) & set(before)
    slipstream.instrument_threads()
    assert methods() == patched
    slipstream.uninstrument_threads()
    assert methods() == patched
    slipstream.uninstrument_threads()
    assert methods() == before
    with pytest.raises(RuntimeError, match="not instrumented"):
        slipstream.uninstrument_threads()


async def test_runners_and_replays_instrument_while_they_last(loop: Loop) -> None:
    before = methods()
    first, second = (slipstream.TrainingRunner(slipstream.SamplingRate(0)) for _ in range(2))
    async with first:
        async with second:
            assert threading.Thread.start is not before[0]
        assert threading.Thread.start is not before[0]
    assert methods() == before
    with slipstream.replay("order-17", 0):
        assert threading.Thread.start is not before[0]
    assert methods() == before


def test_what_another_program_has_wrapped_on_top_stays_and_ours_does_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    python: Any = threading.Thread.start
    slipstream.instrument_threads()
    ours: Any = threading.Thread.start
    started: list[str] = []

    def theirs(self: threading.Thread) -> None:
        started.append(self.name)
        ours(self)

    def in_thread() -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = []
        thread = threading.Thread(target=lambda: found.append(labels()), name="x")
        thread.start()
        thread.join(10)
        return found

    threading.Thread.start = theirs  # type: ignore[method-assign]
    try:
        slipstream.uninstrument_threads()
        assert threading.Thread.start is theirs
        assert "threading.Thread.start was wrapped by another program" in caplog.text
        with slipstream.mark("a"):
            assert in_thread() == [()]
            slipstream.instrument_threads()
            assert threading.Thread.start is theirs  # not wrapped twice
            assert in_thread() == [("a",)]
            slipstream.uninstrument_threads()
        assert started == ["x", "x"]
    finally:
        threading.Thread.start = ours  # type: ignore[method-assign]
    slipstream.instrument_threads()
    slipstream.uninstrument_threads()
    assert threading.Thread.start is python


@pytest.mark.usefixtures("instrumented")
def test_an_item_that_a_replay_could_not_put_is_not_remembered() -> None:
    full: queue.Queue[str] = queue.Queue(1)
    item = "the same object"
    with slipstream.replay("order-17", 0):
        full.put("first")
        with pytest.raises(queue.Full):
            full.put_nowait(item)
        assert full.get() == "first"
        copied = contextvars.copy_context()

    def work() -> None:
        full.get()

    full.put(item)
    thread = threading.Thread(target=copied.run, args=(work,))
    thread.start()
    thread.join(10)
    assert not copied.run(slipstream.is_replay)
    gc.collect()
    assert vars(full)["_slipstream_replayed"] == {}
