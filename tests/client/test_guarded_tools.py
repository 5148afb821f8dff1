"""Tools with side effects: once for the user, never again in a replay."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

import pytest
from guarded_tools import Production
from loops import RunLoop

import slipstream_client as slipstream
from slipstream_client.context import Context, Replay, entered
from slipstream_client.side_effects import guard
from slipstream_client.side_effects.recording import MAX_BYTES, MAX_RESULTS, SideEffect
from slipstream_client.threads import instrumented
from slipstream_client.training.calls import Call


@pytest.fixture
def production() -> Production:
    slipstream.configure(blocked_tools="raise")  # a test sees it best
    return Production()


@dataclass
class Address:
    street: str
    zip_code: int


async def test_a_write_happens_once_and_its_replays_get_the_result(run_loop: RunLoop) -> None:
    sent: list[tuple[str, str]] = []
    results: list[Any] = []
    effects: list[tuple[SideEffect, ...]] = []

    @slipstream.tool(side_effects=True)
    def send_mail(to: str, text: str = "hello") -> dict[str, Any]:
        sent.append((to, text))
        return {"id": len(sent), "access_token": "s3cret"}

    @slipstream.tool(side_effects=True, fallback=lambda order: f"order {order} is cancelled")
    async def cancel(order: int) -> str:
        raise AssertionError("production does not cancel")

    def reward(run: slipstream.RunResult) -> float:
        effects.append(run.side_effects)
        return 0.5

    async with run_loop(selection={"sampling": {"rate": 0.0}}) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(slipstream.SamplingRate(1), reward, repeat_time=4)
        async with slipstream.async_openai() as client, runner:

            @runner.agent
            async def agent() -> str:
                await client.chat.completions.create(model="prod", messages=[{"role": "user", "content": "hello"}])
                results.append(await asyncio.to_thread(send_mail, to="me@example.com"))
                if slipstream.is_replay():
                    assert "not carried out: send_mail" in send_mail("you@example.com")["error"]
                    return await cancel(17)
                return "done"

            with slipstream.mark(task_id="a"):
                assert await agent() == "done"
        group = (await loop.client.get("/runs/a")).json()

    assert sent == [("me@example.com", "hello")]
    assert results == [{"id": 1, "access_token": "s3cret"}] + [{"id": 1, "access_token": "[redacted]"}] * 4
    told = [("send_mail", "recorded"), ("send_mail", "blocked"), ("cancel", "fallback")]
    assert [[(effect.tool, effect.outcome) for effect in run] for run in effects] == [told] * 4
    stored = [{"tool": tool, "outcome": outcome} for tool, outcome in told]
    assert [run["side_effects"] for run in group["runs"]] == [stored] * 4


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (((1, "a"), {}), ((), {"text": "a", "number": 1})),
        (((1,), {}), ((1.0, "x"), {})),
        ((({"b": [1, (2, 3)], "a": {1}},), {}), (({"a": {1}, "b": (1, [2, 3])},), {})),
        (((Address("Elm", 1),), {}), ((Address("Elm", 1),), {})),
        (((datetime(2026, 1, 1), b"\0"), {}), ((datetime(2026, 1, 1), b"\0"), {})),
    ],
)
def test_equal_arguments_are_the_same_call(production: Production, first: Any, second: Any) -> None:
    @slipstream.tool(side_effects=True)
    def write(number: Any, text: Any = "x") -> str:
        return "written"

    with production.call():
        write(*first[0], **first[1])
    with production.replay():
        assert write(*second[0], **second[1]) == "written"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((1,), ("1",)),
        ((1,), (True,)),
        ((None,), ("",)),
        (({1: "a"},), ({"1": "a"},)),
        ((["a", "b"],), (["b", "a"],)),
        ((["ab"],), (["a", "b"],)),
        ((Address("Elm", 1),), (Address("Elm", 2),)),
        ((Address("Elm", 1),), ({"street": "Elm", "zip_code": 1},)),
        ((object(),), (object(),)),
    ],
)
def test_other_arguments_are_another_call(production: Production, first: Any, second: Any) -> None:
    ran = []

    @slipstream.tool(side_effects=True)
    def write(value: Any) -> None:
        ran.append(value)

    with production.call():
        write(*first)
    with production.replay() as run, pytest.raises(slipstream.SideEffectBlocked):
        write(*second)
    assert ran == list(first)
    assert run.side_effects == [SideEffect("write", "blocked")]


def test_the_nth_equal_call_gets_the_nth_result_and_then_the_last(production: Production) -> None:
    numbers = iter(range(10))

    @slipstream.tool(side_effects=True)
    def draw(name: str) -> int:
        return next(numbers)

    with production.call():
        assert [draw("a"), draw("b"), draw("a"), draw("a")] == [0, 1, 2, 3]
    for _ in range(2):
        with production.replay():
            assert [draw("a"), draw("a"), draw("b"), draw("a"), draw("a"), draw("b")] == [0, 2, 1, 3, 3, 1]


def test_a_call_that_raised_in_production_is_blocked(production: Production) -> None:
    answers = iter([ValueError("no paper"), "printed"])

    @slipstream.tool(side_effects=True)
    def print_label() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with production.call():
        with pytest.raises(ValueError, match="no paper"):
            print_label()
        assert print_label() == "printed"
    with production.replay():
        with pytest.raises(slipstream.SideEffectBlocked, match="production's call raised ValueError"):
            print_label()
        assert print_label() == "printed"


def test_a_replay_gets_its_own_copy(production: Production) -> None:
    basket: list[str] = []

    @slipstream.tool(side_effects=True)
    def add(item: str) -> list[str]:
        basket.append(item)
        return basket

    with production.call():
        add("a").append("changed by production")
    for _ in range(2):
        with production.replay():
            result = add("a")
            assert result == ["a"]
            result.append("changed by a replay")


def test_what_cannot_be_kept_is_blocked_and_production_does_not_notice(
    production: Production, caplog: pytest.LogCaptureFixture
) -> None:
    @slipstream.tool(side_effects=True)
    def make(what: str) -> Any:
        return {"lock": threading.Lock(), "huge": b"x" * (MAX_BYTES + 1), "half": b"x" * (MAX_BYTES // 2)}[what]

    with production.call():
        for what in ("lock", "huge", "half", "half", "half"):
            assert make(what)
    with production.replay():
        for what in ("lock", "huge"):
            with pytest.raises(slipstream.SideEffectBlocked):
                make(what)
        assert len(make("half")) == MAX_BYTES // 2
        with pytest.raises(slipstream.SideEffectBlocked):
            make("half")
    assert len(caplog.messages) == 1


def test_no_more_than_so_many_results_are_kept(production: Production) -> None:
    @slipstream.tool(side_effects=True)
    def write(number: int) -> int:
        return number

    with production.call():
        assert [write(number) for number in range(MAX_RESULTS + 1)] == list(range(MAX_RESULTS + 1))
    with production.replay():
        assert write(MAX_RESULTS - 1) == MAX_RESULTS - 1
        with pytest.raises(slipstream.SideEffectBlocked):
            write(MAX_RESULTS)


def test_a_task_that_nobody_replays_keeps_nothing(production: Production) -> None:
    @slipstream.tool(side_effects=True)
    def write() -> str:
        return "written"

    call = Call(Context(), "a", None)
    with entered(Context(task_id="a", call=call)):
        assert write() == "written"
    assert call.recording is None


@dataclass
class Account:
    owner: str
    password: str
    tokens: int


class Plan(Enum):
    PAID = {"token": "of the program"}  # noqa: RUF012 - a member, which nobody changes


def test_what_a_copy_shares_with_production_stays_as_it_is(production: Production) -> None:
    """Pickle copies an enum's member and a function by their names."""
    sign_off.token = "of the program"  # type: ignore[attr-defined]

    @slipstream.tool(side_effects=True)
    def subscribe() -> dict[str, Any]:
        return {"plan": Plan.PAID, "then": sign_off, "token": "of the user"}

    with production.call():
        subscribe()
    assert (Plan.PAID.value, vars(sign_off)) == ({"token": "of the program"}, {"token": "of the program"})
    with production.replay():
        assert subscribe() == {"plan": Plan.PAID, "then": sign_off, "token": "[redacted]"}


def sign_off() -> None: ...


def test_secrets_are_not_kept(production: Production) -> None:
    kept: dict[str, Any] = {"headers": [{"X-Api-Key": "k", "Accept": "json"}], "max_tokens": 5, "apiToken": ("a", "b")}

    @slipstream.tool(side_effects=True)
    def sign_up() -> tuple[Any, Account]:
        return kept, Account("me", "hunter2", 3)

    @slipstream.tool(side_effects=True, redact=lambda result: result.replace("4111", "****"))
    def pay() -> str:
        return "card 4111"

    with production.call():
        assert sign_up()[1].password == "hunter2"
        assert pay() == "card 4111"
    assert kept["apiToken"] == ("a", "b")
    with production.replay():
        plain, account = sign_up()
        assert plain["headers"] == [{"X-Api-Key": "[redacted]", "Accept": "json"}]
        assert (plain["max_tokens"], plain["apiToken"]) == (5, "[redacted]")
        assert account == Account("me", "[redacted]", 3)
        assert pay() == "card ****"


@pytest.mark.parametrize("fallback", [None, {"status": "sent"}, lambda to, text="": {"status": "sent"}])
def test_a_fallback_is_returned_in_place_of_an_error(production: Production, fallback: Any) -> None:
    @slipstream.tool(side_effects=True, fallback=fallback, name="mail")
    def send(to: str, text: str = "") -> Any:
        raise AssertionError("sent")

    for _ in range(2):
        with production.replay() as run:
            result = send("me", text="hello")
            assert result == (None if fallback is None else {"status": "sent"})
            assert run.side_effects == [SideEffect("mail", "fallback")]
            if result is not None:
                result["status"] = "changed"


def test_methods_are_compared_without_their_object(production: Production) -> None:
    class Mailer:
        def __init__(self) -> None:
            self.lock = threading.Lock()
            self.sent: list[str] = []

        @slipstream.tool(side_effects=True)
        def send(self, to: str) -> int:
            self.sent.append(to)
            return len(self.sent)

        @classmethod
        @slipstream.tool(side_effects=True)
        def connect(cls) -> str:
            return "connected"

    first, second = Mailer(), Mailer()
    with production.call():
        assert first.send("me") == 1
        assert Mailer.connect() == "connected"
    with production.replay():
        assert second.send(to="me") == 1
        assert Mailer.connect() == "connected"
    assert second.sent == []


def _by_thread(write: Callable[[], Any], into: list[Any]) -> None:
    def work() -> None:
        try:
            into.append(write())
        except slipstream.SideEffectBlocked as blocked:
            into.append(blocked)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def _by_pool(write: Callable[[], Any], into: list[Any]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: None).result()  # the worker is there before the replay's job
        future = pool.submit(write)
        into.append(future.exception() or future.result())


def _by_task(write: Callable[[], Any], into: list[Any]) -> None:
    async def main() -> None:
        async def work() -> Any:
            return await asyncio.get_running_loop().run_in_executor(None, write)

        into.extend(await asyncio.gather(asyncio.create_task(work()), return_exceptions=True))

    asyncio.run(main())


@pytest.mark.parametrize("start", [_by_thread, _by_pool, _by_task])
def test_the_guard_holds_in_what_the_agent_starts(
    production: Production, start: Callable[[Callable[[], Any], list[Any]], None]
) -> None:
    ran: list[str] = []

    @slipstream.tool(side_effects=True)
    def write(text: str) -> str:
        ran.append(text)
        return text

    outcomes: list[Any] = []
    with production.call(), instrumented():
        start(lambda: write("a"), outcomes)
    with production.replay(), instrumented():
        start(lambda: write("a"), outcomes)
        start(lambda: write("b"), outcomes)
    assert outcomes[:2] == ["a", "a"]
    assert isinstance(outcomes[2], slipstream.SideEffectBlocked)
    assert ran == ["a"]


def test_whatever_goes_wrong_in_a_replay_the_tool_does_not_run(
    production: Production, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    @slipstream.tool(side_effects=True)
    def write(text: str) -> None:
        ran.append(text)

    with production.replay(), pytest.raises(slipstream.SideEffectBlocked):
        write("a", "too", "many")  # type: ignore[call-arg]

    def broken(arguments: Any) -> str:
        raise MemoryError

    monkeypatch.setattr(guard, "fingerprint", broken)
    with production.replay(), pytest.raises(slipstream.SideEffectBlocked):
        write("a")
    with entered(Context(replay=Replay("a", 0))), pytest.raises(slipstream.SideEffectBlocked):
        write("a")
    assert ran == []

    with production.call():
        write("production goes on")
    assert ran == ["production goes on"]


def test_tools_without_side_effects_and_functions_without_a_guard_run_as_they_are(production: Production) -> None:
    def plain(text: str) -> str:
        return text

    assert slipstream.tool(plain) is plain
    assert slipstream.tool()(plain) is plain
    assert slipstream.tool(side_effects=False)(plain) is plain
    with production.replay():
        assert plain("a") == "a"


def test_what_cannot_be_guarded_is_refused() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="numbers is a generator"):
        slipstream.tool(side_effects=True)(numbers)
    with pytest.raises(TypeError, match="below classmethod and staticmethod"):
        slipstream.tool(side_effects=True)(staticmethod(numbers))
    with pytest.raises(TypeError, match="expected a function"):
        slipstream.tool(side_effects=True)(Address)
