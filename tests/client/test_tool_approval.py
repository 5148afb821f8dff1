"""Approval: in production a write that nobody approves does not run, and the agent reads that."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from guarded_tools import Production
from loops import RunLoop

import slipstream_client as slipstream
from slipstream_client.side_effects import guard
from slipstream_client.side_effects.keys import FirstResults
from slipstream_client.side_effects.recording import SideEffect


def rule(call: slipstream.ToolCall) -> bool | str:
    return call.arguments["amount"] <= 50 or "more than 50 EUR need a manager"


async def async_rule(call: slipstream.ToolCall) -> bool | str:
    await asyncio.sleep(0)
    return rule(call)


@pytest.mark.parametrize(
    "approve", [rule, async_rule, lambda call: async_rule(call)], ids=["plain", "async", "returned"]
)
async def test_refused_writes_do_not_run_and_say_so(approve: Any) -> None:
    ran: list[int] = []

    @slipstream.tool(side_effects=True, approve=approve)
    def refund(amount: int) -> dict[str, Any]:
        ran.append(amount)
        return {"paid": amount}

    @slipstream.tool(side_effects=True, approve=approve, name="refund")
    async def async_refund(amount: int) -> dict[str, Any]:
        ran.append(amount)
        return {"paid": amount}

    said = {
        "error": "This action was not carried out: refund was not approved: more than 50 EUR need a manager. "
        "Nothing was changed."
    }
    assert await asyncio.to_thread(refund, 40) == {"paid": 40}
    assert await asyncio.to_thread(refund, amount=60) == said
    assert await async_refund(30) == {"paid": 30}
    assert await async_refund(amount=70) == said
    assert ran == [40, 30]


def test_who_is_asked_sees_the_call_and_is_no_part_of_it() -> None:
    asked: list[slipstream.ToolCall] = []
    contexts: list[Any] = []

    def approve(call: slipstream.ToolCall) -> bool:
        asked.append(call)
        contexts.append(slipstream.current())
        return False

    class Shop:
        @slipstream.tool(side_effects=True, approve=approve)
        def cancel(self, order: int, quick: bool = True) -> bool:
            raise AssertionError("cancelled")

    with slipstream.mark("gold", task_id="order-17", session_id="me", reference="42"):
        assert Shop().cancel(17) is False
    [call] = asked
    assert (call.tool, dict(call.arguments)) == ("cancel", {"order": 17, "quick": True})
    assert (call.task_id, call.session_id, call.labels) == ("order-17", "me", ("gold",))
    assert call.metadata == {"reference": "42"}
    assert (contexts[0].never, contexts[0].task_id, contexts[0].call) == (True, None, None), "a model it asks"


class Unreadable:
    def __eq__(self, other: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return True


def raises(error: BaseException) -> Any:
    def approve(call: slipstream.ToolCall) -> bool:
        raise error

    return approve


async def fails(call: slipstream.ToolCall) -> bool:
    raise ConnectionError("the chat is away: key sk-secret")


async def cancels(call: slipstream.ToolCall) -> bool:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    "approve",
    [
        lambda call: None,
        lambda call: 1,
        lambda call: "yes",
        lambda call: "",
        lambda call: [True],
        lambda call: Unreadable(),
        lambda: True,
        lambda call: "\ud800" * 10_000,
        raises(ConnectionError("the chat is away: key sk-secret")),
        raises(SystemExit(0)),
        raises(TimeoutError()),
        fails,
        cancels,
    ],
)
async def test_whatever_is_not_true_refuses(approve: Any) -> None:
    ran: list[str] = []

    @slipstream.tool(side_effects=True, approve=approve)
    def write(text: str) -> str:
        ran.append(text)
        return text

    @slipstream.tool(side_effects=True, approve=approve)
    async def async_write(text: str) -> str:
        ran.append(text)
        return text

    for said in (await asyncio.to_thread(write, "a"), await async_write("a")):
        assert said.startswith("This action was not carried out")
        assert "secret" not in said
        assert len(said.encode()) < 1000
    assert ran == []


async def test_a_plain_tool_that_blocks_an_event_loop_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    @slipstream.tool(side_effects=True, approve=rule)
    def refund(amount: int) -> str:
        return "paid"

    @slipstream.tool(side_effects=True, approve=rule)
    async def async_refund(amount: int) -> str:
        return "paid"

    assert [await asyncio.to_thread(refund, 1), await async_refund(1)] == ["paid"] * 2
    assert caplog.messages == []
    assert [refund(1), refund(2)] == ["paid"] * 2
    [message] = caplog.messages
    assert message.startswith("refund: a plain tool that is called on an event loop's thread blocks the whole loop")


async def test_no_answer_in_time_refuses_and_a_late_one_changes_nothing() -> None:
    late, ran = threading.Event(), []
    asked: list[str] = []

    def hangs(call: slipstream.ToolCall) -> bool:
        asked.append(threading.current_thread().name)
        late.wait(30)
        return True

    async def async_hangs(call: slipstream.ToolCall) -> bool:
        try:
            await asyncio.Event().wait()
        finally:
            asked.append("cancelled")
        return True

    def write() -> str:
        ran.append("written")
        return "written"

    async def async_write() -> str:
        return write()

    options = {"side_effects": True, "approve_timeout": 0.05}
    results = [
        await asyncio.to_thread(slipstream.tool(**options, approve=hangs)(write)),  # type: ignore[call-overload]
        await slipstream.tool(**options, approve=hangs)(async_write)(),  # type: ignore[call-overload]
        await slipstream.tool(**options, approve=async_hangs)(async_write)(),  # type: ignore[call-overload]
    ]
    late.set()
    await asyncio.sleep(0)
    assert all("nobody approved it in time" in result for result in results)
    assert asked == ["slipstream-approval", "slipstream-approval", "cancelled"]
    for thread in threading.enumerate():
        if thread.name == "slipstream-approval":
            thread.join(10)
    assert ran == []


async def test_a_call_that_is_cancelled_while_it_waits_does_not_run() -> None:
    asked, taken_back, ran = asyncio.Event(), asyncio.Event(), []

    async def approve(call: slipstream.ToolCall) -> bool:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            taken_back.set()
        return True

    @slipstream.tool(side_effects=True, approve=approve)
    async def write() -> None:
        ran.append("written")

    writing = asyncio.create_task(write())
    await asked.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await asyncio.wait_for(taken_back.wait(), 10)
    assert ran == []


def test_arguments_that_change_after_they_were_shown_are_refused() -> None:
    items = ["pen"]

    def approve(call: slipstream.ToolCall) -> bool:
        items.append("car")
        return True

    @slipstream.tool(side_effects=True, approve=approve)
    def order(what: list[str]) -> str:
        raise AssertionError(f"ordered {what}")

    assert "its arguments were changed" in order(items)


def test_with_a_key_a_write_is_approved_once_and_a_refused_one_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "first_results", FirstResults())
    answers = iter([False, True])

    @slipstream.tool(side_effects=True, approve=lambda call: next(answers), idempotency_key=lambda: "one")
    def write() -> str:
        return "written"

    with slipstream.mark(task_id="a"):
        assert "was not approved" in write()
        assert [write(), write(), write()] == ["written"] * 3


def test_replays_see_the_refusal_and_ask_nobody() -> None:
    production, asked = Production(), []

    def approve(call: slipstream.ToolCall) -> bool | str:
        asked.append(dict(call.arguments))
        return "not today"

    @slipstream.tool(side_effects=True, approve=approve, redact=lambda result: result["none"], blocked="raise")
    def pay(amount: int) -> list[str]:
        raise AssertionError("paid")

    with production.call():
        said = pay(1)
        assert "pay was not approved: not today" in said[0]
    for _ in range(2):
        with production.replay() as run:
            assert pay(1) == said
            with pytest.raises(slipstream.SideEffectBlocked):
                pay(2)
    assert run.side_effects == [SideEffect("pay", "refused"), SideEffect("pay", "blocked")]
    assert run.blocked == ("pay",)
    assert asked == [{"amount": 1}]


async def test_the_sidecar_is_told_of_refused_writes(run_loop: RunLoop) -> None:
    @slipstream.tool(side_effects=True, approve=rule)
    async def refund(amount: int) -> str:
        return "paid"

    async with run_loop(selection={"sampling": {"rate": 0.0}}) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(
            slipstream.SamplingRate(1),
            lambda run: 0.0 if run.side_effects[0].outcome == "refused" else 1.0,
            repeat_time=2,
        )
        async with slipstream.async_openai() as client, runner:

            @runner.agent
            async def agent() -> str:
                result = await refund(90)
                await client.chat.completions.create(model="prod", messages=[{"role": "user", "content": result}])
                return result

            with slipstream.mark(task_id="a"):
                assert "need a manager" in await agent()
        group = (await loop.client.get("/runs/a")).json()
    assert [run["side_effects"] for run in group["runs"]] == [[{"tool": "refund", "outcome": "refused"}]] * 2
    assert [run["reward"] for run in group["runs"]] == [0.0, 0.0]
