"""Idempotency keys: a retry within a task does not write twice."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import signal
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from guarded_tools import Production
from loops import RunLoop

import slipstream_client as slipstream
from slipstream_client.side_effects import guard
from slipstream_client.side_effects.keys import FirstResults
from slipstream_client.side_effects.recording import SideEffect


@pytest.fixture(autouse=True)
def new_memory(monkeypatch: pytest.MonkeyPatch) -> FirstResults:
    results = FirstResults()
    monkeypatch.setattr(guard, "first_results", results)
    return results


def in_task(task_id: str) -> Any:
    return slipstream.mark(task_id=task_id)


def test_a_second_call_of_a_key_returns_the_first_result() -> None:
    sent: list[tuple[int, str]] = []

    @slipstream.tool(side_effects=True, idempotency_key=lambda order, note="": f"refund-{order}")
    def refund(order: int, note: str = "") -> dict[str, Any]:
        sent.append((order, note))
        return {"number": len(sent)}

    with in_task("a"):
        refund(17, "at 10:01")["number"] = "changed by the agent"
        assert refund(order=17, note="at 10:02") == {"number": 1}
        assert refund(18) == {"number": 2}
    with in_task("a"):  # the agent is called once more for the same task
        assert refund(17) == {"number": 1}
    with in_task("b"):
        assert refund(17) == {"number": 3}
    assert sent == [(17, "at 10:01"), (18, ""), (17, "")]


def test_a_plain_wrapper_of_an_async_function_is_refused_by_name_and_does_not_run() -> None:
    """Its coroutine would be remembered in place of a result: the second caller could not await it again."""
    sent: list[int] = []

    def timed(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    async def refund(order: int) -> str:
        sent.append(order)
        return "refunded"

    def keyed(function: Any) -> Any:
        return slipstream.tool(side_effects=True, idempotency_key=lambda order: str(order))(function)

    async def agent(tool: Any) -> list[str]:
        return [await tool(17), await tool(17)]

    with in_task("a"):
        for outer in (keyed(timed(refund)), keyed(lambda order: asyncio.ensure_future(refund(order)))):
            with pytest.raises(TypeError, match=r"^(refund|<lambda>): .*`async def`.* below"):
                asyncio.run(agent(outer))
        assert sent == []
        assert asyncio.run(agent(timed(keyed(refund)))) == ["refunded"] * 2
        assert keyed(timed(lambda order: f"plain {order}"))(18) == "plain 18"
    assert sent == [17]


def test_outside_of_a_task_each_call_runs_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    @slipstream.tool(side_effects=True, idempotency_key=lambda: "one")
    def write() -> int:
        return next(numbers)

    numbers = iter(range(5))
    assert [write(), write()] == [0, 1]
    assert [message for message in caplog.messages if "put a mark around the agent" in message] == caplog.messages[:1]


def test_what_is_remembered_holds_no_task_and_no_event_loop() -> None:
    """As in a synchronous server whose handlers say `asyncio.run(agent())`."""
    called: list[weakref.ref[Any]] = []

    @slipstream.tool(side_effects=True, idempotency_key=lambda: "one")
    async def write() -> int:
        await asyncio.sleep(0)
        return len(called)

    async def agent() -> list[int]:
        called.append(weakref.ref(asyncio.get_running_loop()))
        tasks = [asyncio.create_task(write()) for _ in range(2)]  # one of them waits for the other
        called.extend(weakref.ref(task) for task in tasks)
        return list(await asyncio.gather(*tasks))

    with in_task("a"):
        assert asyncio.run(agent()) == [3, 3]
        gc.collect()
        assert [reference() for reference in called] == [None] * 3
        assert asyncio.run(write()) == 3


def test_after_a_call_that_raised_the_next_one_runs() -> None:
    answers = iter([OSError("no line"), "paid"])

    @slipstream.tool(side_effects=True, idempotency_key=lambda order: str(order))
    def pay(order: int) -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with in_task("a"):
        with pytest.raises(OSError, match="no line"):
            pay(1)
        assert [pay(1), pay(1)] == ["paid", "paid"]


def test_calls_at_the_same_time_run_once(instrumented: None) -> None:
    ran: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    @slipstream.tool(side_effects=True, idempotency_key=lambda number: "one")
    def write(number: int) -> int:
        ran.append(number)
        begun.set()
        assert go_on.wait(10)
        return number

    with ThreadPoolExecutor(4) as pool, in_task("a"):
        first = pool.submit(write, 0)
        assert begun.wait(10)
        others = [pool.submit(write, number) for number in (1, 2, 3)]
        go_on.set()
        assert {future.result(10) for future in (first, *others)} == {0}
    assert ran == [0]


async def test_async_calls_at_the_same_time_run_once_and_a_cancelled_one_makes_room() -> None:
    ran: list[int] = []
    begun = asyncio.Event()
    hang = asyncio.Event()

    @slipstream.tool(side_effects=True, idempotency_key=lambda number: "one")
    async def write(number: int) -> int:
        ran.append(number)
        begun.set()
        if number == 0:
            await hang.wait()
        return number

    with in_task("a"):
        first = asyncio.create_task(write(0))
        await begun.wait()
        gives_up, waits = asyncio.create_task(write(1)), asyncio.create_task(write(2))
        await asyncio.sleep(0)
        gives_up.cancel()
        await asyncio.wait({gives_up})
        assert ran == [0], "one who does not wait any more ends nobody's call"
        first.cancel()
        assert await waits == 2
        assert await write(3) == 2
    assert ran == [0, 2]


def test_a_call_that_would_wait_for_itself_is_an_error() -> None:
    @slipstream.tool(side_effects=True, idempotency_key=lambda: "one")
    def write() -> int:
        return int(write())

    with in_task("a"), pytest.raises(RuntimeError, match="calls it again with the same key"):
        write()


def test_in_a_replay_calls_of_a_key_are_the_same() -> None:
    production = Production()

    @slipstream.tool(side_effects=True, idempotency_key=lambda order, at: f"refund-{order}")
    def refund(order: int, at: object) -> str:
        return f"refund {order} at {at}"

    with production.call():
        assert refund(17, "10:01") == refund(17, "10:02") == "refund 17 at 10:01"
    with production.replay() as run:
        assert refund(17, at=object()) == "refund 17 at 10:01"
        assert "not carried out" in refund(18, "10:01")
    assert run.side_effects == [SideEffect("refund", "recorded"), SideEffect("refund", "blocked")]


@pytest.mark.parametrize("key", [lambda text: 1 / 0, lambda text: "", lambda text: None, lambda text: 5])
def test_a_call_without_a_key_does_not_run(key: Any) -> None:
    ran: list[str] = []

    @slipstream.tool(side_effects=True, idempotency_key=key)
    def write(text: str) -> str:
        ran.append(text)
        return "written"

    with in_task("a"), pytest.raises((ZeroDivisionError, TypeError)):
        write("a")
    with Production().replay() as run:
        assert "not carried out" in write("a")
    assert (ran, run.blocked) == ([], ("write",))


def test_the_oldest_keys_are_forgotten() -> None:
    results = FirstResults(limit=2)
    ran: list[str] = []

    def once(text: str) -> None:
        results.once(("tool", "task", text), lambda: ran.append(text), lambda result: True)

    for text in ("a", "b", "b", "c", "c", "b", "a"):
        once(text)
    assert ran == ["a", "b", "c", "a"]


@pytest.mark.slow
async def test_replays_of_a_retried_agent_get_the_first_result(run_loop: RunLoop) -> None:
    ran: list[str] = []
    outputs: list[Any] = []

    @slipstream.tool(side_effects=True, idempotency_key=lambda order, note: str(order))
    def refund(order: int, note: str) -> str:
        ran.append(note)
        return note

    async with run_loop(selection={"sampling": {"rate": 0.0}}) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(
            lambda task: task.args[0] == "again", lambda run: outputs.append(run.output) or 1.0, repeat_time=2
        )
        async with slipstream.async_openai() as client, runner:

            @runner.agent
            async def agent(note: str) -> str:
                result = refund(17, note + (" replayed" if slipstream.is_replay() else ""))
                await client.chat.completions.create(model="prod", messages=[{"role": "user", "content": result}])
                if note == "first":
                    raise ConnectionError("the agent has to be called once more")
                return result

            with slipstream.mark(task_id="a"), pytest.raises(ConnectionError):
                await agent("first")
            with slipstream.mark(task_id="a"):
                assert await agent("again") == "first"

    assert ran == ["first"]
    assert outputs == ["first", "first"]


@pytest.mark.slow
def test_a_child_does_not_wait_for_its_parents_calls(new_memory: FirstResults) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        go_on.wait(30)

    key = ("tool", "task", "one")
    thread = threading.Thread(target=new_memory.once, args=(key, hang, lambda result: True))
    thread.start()
    assert begun.wait(10)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(new_memory.once(key, lambda: 7, lambda result: True))
    go_on.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
