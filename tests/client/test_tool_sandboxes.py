"""Sandboxes: in a replay a tool runs on something that only looks like the world."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from guarded_tools import Production
from loops import RunLoop

import slipstream_client as slipstream
from slipstream_client.context import Context, Replay, entered
from slipstream_client.side_effects.recording import SideEffect
from slipstream_client.threads import instrumented


class Bank:
    """A sandbox with a memory, for two tools."""

    made: list[Bank] = []  # noqa: RUF012 - counts for all of them

    def __init__(self) -> None:
        self.balance = 100
        self.is_open = False
        Bank.made.append(self)

    def __enter__(self) -> Bank:
        self.is_open = True
        return self

    def __exit__(self, *error: object) -> None:
        self.is_open = False

    def pay(self, amount: int) -> str:
        assert self.is_open
        self.balance -= amount
        return f"{self.balance} left"

    async def refund(self, amount: int) -> str:
        assert self.is_open
        self.balance += amount
        return f"{self.balance} left"


async def test_each_run_has_a_sandbox_of_its_own_and_the_reward_sees_it(run_loop: RunLoop) -> None:
    Bank.made.clear()
    paid: list[int] = []
    seen: list[tuple[int, bool]] = []

    @slipstream.tool(side_effects=True, sandbox=Bank)
    def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    @slipstream.tool(side_effects=True, sandbox=Bank)
    async def refund(amount: int) -> str:
        raise AssertionError("paid back")

    def reward(run: slipstream.RunResult) -> float:
        bank = run.sandboxes[Bank]
        seen.append((bank.balance, bank.is_open))
        assert run.blocked == ()
        return 0.5

    async with run_loop(selection={"sampling": {"rate": 0.0}}) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(slipstream.SamplingRate(1), reward, repeat_time=2)
        async with slipstream.async_openai() as client, runner:

            @runner.agent
            async def agent() -> str:
                await client.chat.completions.create(model="prod", messages=[{"role": "user", "content": "hello"}])
                results = [await asyncio.to_thread(pay, 5)]
                if slipstream.is_replay():
                    results += [await asyncio.to_thread(pay, 30), await refund(7)]
                return ", ".join(results)

            with slipstream.mark(task_id="a"):
                assert await agent() == "paid"
        group = (await loop.client.get("/runs/a")).json()

    assert paid == [5]
    assert runner.stats.finished == 2
    assert seen == [(77, True)] * 2, "the recorded result comes before the sandbox, and runs share nothing"
    assert [bank.is_open for bank in Bank.made] == [False, False]
    outcomes = [[effect["outcome"] for effect in run["side_effects"]] for run in group["runs"]]
    assert outcomes == [["recorded", "sandboxed", "sandboxed"]] * 2


async def test_functions_methods_and_async_tools_have_sandboxes() -> None:
    class Shop:
        @slipstream.tool(side_effects=True, sandbox=lambda self, order, *, quick=False: f"as if {order} {quick}")
        def cancel(self, order: int, *, quick: bool = False) -> str:
            raise AssertionError("cancelled")

        @slipstream.tool(side_effects=True, sandbox=type("Fake", (), {"book": lambda self, order: f"as if {order}"}))
        def book(self, order: int) -> str:
            raise AssertionError("booked")

        @staticmethod
        @slipstream.tool(side_effects=True, sandbox=type("Fake", (), {"ship": staticmethod(lambda order: order)}))
        def ship(order: int) -> Any:
            raise AssertionError("shipped")

    async def fake(text: str) -> str:
        return f"as if {text}"

    @slipstream.tool(side_effects=True, sandbox=fake)
    async def write(text: str) -> str:
        raise AssertionError("written")

    @slipstream.tool(side_effects=True, sandbox=lambda text: f"as if {text}")
    async def send(text: str) -> str:
        raise AssertionError("sent")

    with slipstream.replay("a", 0) as run:
        assert Shop().cancel(1, quick=True) == "as if 1 True"
        assert Shop().book(order=2) == "as if 2"
        assert Shop.ship(3) == 3
        assert await write("x") == "as if x"
        assert await send(text="y") == "as if y"
    assert {effect.outcome for effect in run.side_effects} == {"sandboxed"}
    assert run.blocked == ()


def test_a_sandbox_never_runs_in_production() -> None:
    ran: list[str] = []

    @slipstream.tool(side_effects=True, sandbox=lambda: ran.append("sandbox"))
    def write() -> None:
        ran.append("tool")

    write()
    with Production().call():
        write()
    assert ran == ["tool", "tool"]


def test_an_error_in_the_sandbox_is_the_tools() -> None:
    def broke(amount: int) -> str:
        raise LookupError("no such account")

    @slipstream.tool(side_effects=True, sandbox=broke)
    def pay(amount: int) -> str:
        raise AssertionError("paid")

    class Unusable:
        def __init__(self) -> None:
            raise OSError("no disk")

        def book(self) -> None: ...

    @slipstream.tool(side_effects=True, sandbox=Unusable)
    def book() -> None:
        raise AssertionError("booked")

    with Production().replay() as run:
        with pytest.raises(LookupError, match="no such account"):
            pay(1)
        with pytest.raises(OSError, match="no disk"):
            book()
    assert run.side_effects == [SideEffect("pay", "sandboxed"), SideEffect("book", "sandboxed")]


def test_parallel_tools_of_one_run_share_the_object() -> None:
    Bank.made.clear()

    @slipstream.tool(side_effects=True, sandbox=Bank)
    def pay(amount: int) -> str:
        raise AssertionError("paid")

    with slipstream.replay("a", 0) as run, instrumented():
        threads = [threading.Thread(target=pay, args=(1,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        [bank] = Bank.made
        assert bank.is_open
        assert len(run.side_effects) == 8
    assert not bank.is_open, "a webhook's replay leaves it too"
    with entered(Context(replay=run)), pytest.raises(RuntimeError, match="the run has ended"):
        pay(1)
    with entered(Context(replay=Replay("a", 0))):  # in another process, which has not the run's objects
        assert "not carried out: pay" in pay(1)
    assert len(Bank.made) == 1


def test_a_sandbox_that_is_made_when_its_run_has_ended_is_left_at_once() -> None:
    """By a thread of an agent that did not return in time."""
    left: list[str] = []

    class Slow:
        def __enter__(self) -> None:
            run.sandboxes.end()

        def __exit__(self, *error: object) -> None:
            left.append("left")

        def write(self) -> None: ...

    @slipstream.tool(side_effects=True, sandbox=Slow)
    def write() -> None:
        raise AssertionError("written")

    with slipstream.replay("a", 0) as run, pytest.raises(RuntimeError, match="the run has ended"):
        write()
    assert left == ["left"]


async def test_a_sandbox_that_cannot_be_left_costs_nothing_but_a_line_in_the_log(
    run_loop: RunLoop, caplog: pytest.LogCaptureFixture
) -> None:
    class Stuck:
        def __enter__(self) -> Stuck:
            return self

        def __exit__(self, *error: object) -> None:
            raise OSError("still in use")

        def write(self) -> str:
            return "as if"

    @slipstream.tool(side_effects=True, sandbox=Stuck)
    def write() -> str:
        return "written"

    async with run_loop(selection={"sampling": {"rate": 0.0}}) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(slipstream.SamplingRate(1), lambda run: 1.0, repeat_time=2)
        async with slipstream.async_openai() as client, runner:

            @runner.agent
            async def agent() -> str:
                await client.chat.completions.create(model="prod", messages=[{"role": "user", "content": "hello"}])
                return write() if slipstream.is_replay() else ""

            await agent()
    assert (runner.stats.finished, runner.stats.failed, runner.stats.running) == (2, {}, 0)
    assert any("still in use" in message for message in caplog.messages)


def stub(amount: int) -> str:
    return "as if"


async def async_stub(amount: int) -> str:
    return "as if"


def numbers(amount: int) -> Iterator[int]:
    yield amount


class NoMethod: ...


class OnlyAsync:
    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *error: object) -> None: ...

    def pay(self, amount: int) -> None: ...


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"sandbox": stub, "side_effects": False}, ValueError, "sandbox: a tool without side effects"),
        ({"approve": stub, "side_effects": False}, ValueError, "approve: a tool without side effects"),
        ({"idempotency_key": stub, "side_effects": False}, ValueError, "idempotency_key: a tool without side effects"),
        ({"sandbox": stub, "fallback": None}, ValueError, "fallback: a tool with a sandbox"),
        ({"sandbox": stub, "blocked": "raise"}, ValueError, "blocked: a tool with a sandbox"),
        ({"approve_timeout": 5}, ValueError, "approve_timeout: nobody is asked"),
        ({"approve": stub, "approve_timeout": 0}, ValueError, "approve_timeout: expected seconds above 0, found 0"),
        ({"approve": True}, TypeError, "approve: expected a function of a ToolCall, found True"),
        ({"sandbox": "none"}, TypeError, "sandbox: expected a function or a class, found 'none'"),
        ({"sandbox": async_stub}, TypeError, "sandbox: pay is no async function"),
        ({"sandbox": numbers}, TypeError, "sandbox: expected a function that returns a result"),
        ({"sandbox": NoMethod}, TypeError, "sandbox: NoMethod has no method pay"),
        ({"sandbox": OnlyAsync}, TypeError, "sandbox: OnlyAsync is an asynchronous context manager"),
        ({"sandbox": lambda: None}, TypeError, "sandbox: expected a function of the tool's arguments"),
        ({"sandbox": lambda euros: None}, TypeError, "sandbox: expected a function of the tool's arguments"),
        ({"idempotency_key": lambda euros: ""}, TypeError, "idempotency_key: expected a function of the tool's"),
        ({"idempotency_key": async_stub}, TypeError, "idempotency_key: expected a plain function"),
        ({"idempotency_key": "order"}, TypeError, "idempotency_key: expected a plain function"),
    ],
)
def test_what_makes_no_sense_is_refused_when_the_tool_is_made(
    arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    def pay(amount: int) -> str:
        return "paid"

    with pytest.raises(kind, match=f"^{message}"):
        slipstream.tool(**{"side_effects": True, **arguments})(pay)


def test_a_tool_is_no_sandbox_of_itself() -> None:
    def pay(amount: int) -> str:
        return "paid"

    with pytest.raises(ValueError, match=r"^sandbox: expected another function, found the tool itself"):
        slipstream.tool(side_effects=True, sandbox=pay)(pay)
