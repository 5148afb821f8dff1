"""What `@runner.agent` does to an agent: nothing that its callers notice; and what its replays are given."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from types import ModuleType
from typing import Any

import pytest
from loops import RunLoop
from serving import until

import slipstream_client as slipstream
from slipstream_client.training import choosing

ALWAYS = slipstream.SamplingRate(1)


def test_an_agent_keeps_its_name_signature_result_and_error(runner: slipstream.TrainingRunner, ran: list[Any]) -> None:
    @runner.agent
    def agent(question: str, *, polite: bool = True) -> str:
        """Answers."""
        if not polite:
            raise KeyError(question)
        return f"{question}!"

    assert (agent.__name__, agent.__doc__) == ("agent", "Answers.")
    assert list(inspect.signature(agent).parameters) == ["question", "polite"]
    assert agent("a", polite=True) == "a!"
    with pytest.raises(KeyError, match="b"):
        agent("b", polite=False)
    assert [task.snapshot for task in ran] == [(("a",), {"polite": True})]
    assert runner.stats.dropped == {"production_failed": 1}


def test_a_runner_that_is_not_started_observes_nothing(ran: list[Any]) -> None:
    runner = slipstream.TrainingRunner(ALWAYS)
    agent = runner.agent(lambda: slipstream.current().task_id)
    assert agent() is None
    with runner:
        assert agent() is not None
    assert agent() is None
    assert len(ran) == 1
    assert runner.stats.calls == 1


def test_an_agent_inside_another_one_belongs_to_its_task(runner: slipstream.TrainingRunner, ran: list[Any]) -> None:
    @runner.agent
    def inner() -> str | None:
        return slipstream.current().task_id

    @runner.agent
    def outer() -> tuple[str | None, list[str | None]]:
        found: list[str | None] = []
        thread = threading.Thread(target=lambda: found.append(inner()))
        thread.start()
        thread.join()
        return inner(), found

    task_id, found = outer()
    assert found == [task_id]
    assert [task.task_id for task in ran] == [task_id]
    assert inner() != task_id
    assert len(ran) == 2
    assert runner.stats.calls == 2


def test_a_mark_around_the_call_names_the_task_and_never_is_heeded(
    runner: slipstream.TrainingRunner, ran: list[Any]
) -> None:
    agent = runner.agent(lambda: slipstream.current().task_id)
    with slipstream.mark("good", task_id="order-17", session_id="customer-7", reference="42"):
        assert agent() == "order-17"
    with slipstream.never():
        agent()
    [task] = ran
    assert (task.task_id, task.session_id, task.labels) == ("order-17", "customer-7", ("good",))
    assert task.metadata == {"reference": "42"}


def test_an_agent_with_calls_that_must_not_train_is_not_run_again(
    runner: slipstream.TrainingRunner, ran: list[Any]
) -> None:
    @runner.agent
    def agent(private: bool) -> None:
        if private:
            with slipstream.never(), slipstream.mark("inside"):
                pass

    agent(False)
    agent(True)
    assert [task.snapshot for task in ran] == [((False,), {})]
    assert runner.stats.dropped == {"never": 1}


def test_what_the_agent_marks_inside_goes_with_its_replays(runner: slipstream.TrainingRunner, ran: list[Any]) -> None:
    @runner.agent
    def agent() -> None:
        with slipstream.mark("hard", topic="parcels"):
            pass
        with slipstream.mark("another", task_id="another"):
            pass

    with slipstream.mark("good"):
        agent()
    assert (ran[0].labels, ran[0].metadata) == (("good", "hard"), {"topic": "parcels"})


def test_generators_are_agents_too(runner: slipstream.TrainingRunner, ran: list[Any]) -> None:
    tasks: list[str | None] = []

    @runner.agent
    def agent(count: int) -> Any:
        for number in range(count):
            tasks.append(slipstream.current().task_id)
            try:
                got = yield number
            except ValueError:
                got = "thrown"
            if got:
                tasks.append(got)
        return "end"

    assert inspect.isgeneratorfunction(agent)
    items = agent(3)
    assert next(items) == 0
    assert slipstream.current().task_id is None
    assert items.send("sent") == 1
    assert items.throw(ValueError()) == 2
    with pytest.raises(StopIteration) as end:
        next(items)
    assert end.value.value == "end"
    assert tasks == [tasks[0], "sent", tasks[0], "thrown", tasks[0]]
    assert [task.output for task in ran] == [[0, 1, 2]]

    left = agent(3)
    next(left)
    left.close()
    assert len(ran) == 1
    assert runner.stats.dropped == {"production_failed": 1}


def test_a_mark_inside_a_generator_holds_from_item_to_item(runner: slipstream.TrainingRunner, ran: list[Any]) -> None:
    @runner.agent
    def agent() -> Iterator[tuple[str, ...]]:
        with slipstream.mark("inside"):
            yield slipstream.current().labels
            yield slipstream.current().labels
        yield slipstream.current().labels

    with slipstream.mark("around"):
        assert list(agent()) == [("around", "inside"), ("around", "inside"), ("around",)]
        assert slipstream.current().labels == ("around",)
    assert slipstream.current().labels == ()
    assert ran[0].labels == ("around", "inside")


async def test_a_generator_that_is_left_early_ends_in_its_own_context(
    runner: slipstream.TrainingRunner, ran: list[Any]
) -> None:
    ends: list[Any] = []

    @runner.agent
    def agent() -> Generator[int, None, None]:
        with slipstream.never():
            try:
                yield 1
            finally:
                ends.append(slipstream.current())

    @runner.agent
    async def async_agent() -> AsyncGenerator[int, None]:
        with slipstream.never():
            try:
                yield 1
            finally:
                await asyncio.sleep(0)
                ends.append(slipstream.current())

    with slipstream.mark(task_id="order-17"):
        left, async_left = agent(), async_agent()
        assert [next(left), await anext(async_left)] == [1, 1]
    left.close()
    await async_left.aclose()
    assert [(end.task_id, end.call is not None, end.never) for end in ends] == [
        ("order-17", True, True),
    ] * 2
    assert slipstream.current().call is None
    assert ran == []


async def test_async_generators_are_agents_too(ran: list[Any]) -> None:
    runner = slipstream.TrainingRunner(ALWAYS)
    async with runner:

        @runner.agent
        async def agent(count: int) -> AsyncIterator[tuple[int, str | None]]:
            for number in range(count):
                await asyncio.sleep(0)
                yield number, slipstream.current().task_id

        found = [(item, slipstream.current().task_id) async for item in agent(2)]
        left = agent(3)
        await anext(left)
        await left.aclose()
    task_id = found[0][0][1]
    assert task_id is not None
    assert found == [((0, task_id), None), ((1, task_id), None)]
    assert [task.output for task in ran] == [[(0, task_id), (1, task_id)]]
    assert runner.stats.dropped == {"production_failed": 1}


def test_a_method_is_an_agent_whose_object_is_copied_too(runner: slipstream.TrainingRunner, ran: list[Any]) -> None:
    class Support:
        def __init__(self) -> None:
            self.history: list[str] = []

        @runner.agent
        def answer(self, question: str) -> str:
            self.history.append(question)
            return question.upper()

    support = Support()
    assert support.answer("a") == "A"
    [task] = ran
    assert task.snapshot[0][0].history == []
    assert support.history == ["a"]


def test_inputs_are_those_of_the_beginning(runner: slipstream.TrainingRunner, ran: list[Any]) -> None:
    @runner.agent
    def agent(messages: list[str], *, state: dict[str, Any]) -> list[str]:
        messages.append("changed by the agent")
        state.clear()
        return messages

    output = agent(["a"], state={"b": 1})
    output.append("changed by its caller")
    [task] = ran
    assert task.snapshot == ((["a"],), {"state": {"b": 1}})
    first, second = task.inputs(), task.inputs()
    first[0][0].append("changed by a replay")
    assert second == ((["a"],), {"state": {"b": 1}})
    assert task.output == ["a", "changed by the agent"]


def test_what_cannot_be_copied_is_not_run_again(
    runner: slipstream.TrainingRunner, ran: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    agent = runner.agent(lambda lock: "answer")
    assert [agent(threading.Lock()) for _ in range(3)] == ["answer"] * 3
    assert ran == []
    assert runner.stats.dropped == {"not_copied": 3}
    assert len([message for message in caplog.messages if "cannot be copied" in message]) == 1


def test_the_developer_can_say_what_to_copy(runner: slipstream.TrainingRunner, ran: list[Any]) -> None:
    @runner.agent(inputs=lambda lock, items: ((lock, list(items)), {}))
    def agent(lock: Any, items: list[str]) -> None:
        with lock:
            items.clear()

    lock = threading.Lock()
    agent(lock, ["a"])
    [task] = ran
    assert task.inputs() == ((lock, ["a"]), {})


def test_only_selected_calls_are_copied(ran: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[Any] = []
    monkeypatch.setattr(choosing, "deepcopy", lambda value: copied.append(value) or value)
    inputs = lambda *args: copied.append(args) or (args, {})  # noqa: E731
    for selection, count in (
        (slipstream.SamplingRate(0), 0),
        (slipstream.ExplicitMarking(inside=False), 0),
        (slipstream.ExplicitMarking(), 1),
        (lambda candidate: candidate.args == ("b",), 0),
    ):
        copied.clear()
        with slipstream.TrainingRunner(selection) as runner:
            runner.agent(inputs=inputs)(lambda text: text)("a")
        assert len(copied) == count
    assert ran == []


def test_explicit_marks_select_around_and_inside(ran: list[Any]) -> None:
    def inside() -> None:
        with slipstream.mark("good"):
            pass

    def chosen(selection: Any, agent: Callable[[], None], *labels: str) -> int:
        with slipstream.TrainingRunner(selection) as runner:
            if labels:
                with slipstream.mark(*labels):
                    runner.agent(agent)()
            else:
                runner.agent(agent)()
        count, ran[:] = len(ran), []
        assert runner.stats.selected == count
        return count

    def nothing() -> None: ...

    marking = slipstream.ExplicitMarking
    assert chosen(marking(), nothing) == 0
    assert chosen(marking(), nothing, "any") == 1
    assert chosen(marking(), inside) == 1
    assert chosen(marking(inside=False), inside) == 0
    assert chosen(marking(inside=False), nothing, "any") == 1
    assert chosen(marking("good"), nothing, "any") == 0
    assert chosen(marking("good"), inside, "any") == 1
    assert chosen(marking("good"), nothing, "any", "good") == 1


def test_sampling_takes_its_share_and_always_the_same_tasks() -> None:
    def taken(rate: float) -> set[str]:
        candidates = [slipstream.Candidate(f"task-{number}", (), {}, (), {}) for number in range(10_000)]
        return {one.task_id for one in candidates if slipstream.SamplingRate(rate).select(one)}

    assert taken(0) == set()
    assert len(taken(1)) == 10_000
    assert 900 < len(taken(0.1)) < 1100
    assert taken(0.1) == taken(0.1)
    assert taken(0.1) < taken(0.2)
    for wrong in (-0.1, 1.1, float("nan"), True, "1"):
        with pytest.raises(ValueError, match="rate: expected a number from 0 to 1"):
            slipstream.SamplingRate(wrong)  # type: ignore[arg-type]


def test_a_strategy_that_raises_selects_nothing_and_breaks_nothing(ran: list[Any]) -> None:
    def broken(candidate: slipstream.Candidate) -> bool:
        raise LookupError(candidate.task_id)

    with slipstream.TrainingRunner(broken) as runner:
        assert runner.agent(lambda: "answer")() == "answer"
    assert ran == []
    assert runner.stats.dropped == {"selection_raised": 1}


async def _later(candidate: slipstream.Candidate) -> bool:
    return True


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"selection": 0.1}, TypeError, "selection: expected a strategy"),
        ({"selection": slipstream.SamplingRate}, TypeError, "selection: expected a strategy"),
        ({"selection": _later}, TypeError, "selection: .* cannot be async"),
        ({"reward": 0.5}, TypeError, "reward: expected a function"),
        ({"repeat_time": 0}, ValueError, "repeat_time: expected a whole number"),
        ({"concurrency": 1.5}, ValueError, "concurrency: expected a whole number"),
        ({"queue": True}, ValueError, "queue: expected a whole number"),
        ({"commit_interval": 0}, ValueError, "commit_interval: expected seconds"),
        ({"timeout": float("inf")}, ValueError, "timeout: expected seconds"),
        ({"url": "sidecar"}, ValueError, "url: expected the sidecar's address"),
    ],
)
def test_a_wrong_argument_is_refused_by_its_name(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        slipstream.TrainingRunner(**{"selection": ALWAYS, **arguments})


def test_the_runners_address_is_that_of_the_clients() -> None:
    slipstream.configure("http://127.0.0.1:1", timeout=3)
    slipstream.TrainingRunner(ALWAYS, url="http://127.0.0.1:2/v1")
    assert (slipstream.settings().url, slipstream.settings().timeout) == ("http://127.0.0.1:2", 3)


def test_a_runner_starts_once_and_again_after_it_stopped(ran: list[Any]) -> None:
    runner = slipstream.TrainingRunner(ALWAYS)
    runner.stop()
    with runner, pytest.raises(RuntimeError, match="started already"):
        runner.start()
    agent = runner.agent(lambda: None)
    with runner:
        agent()
    assert len(ran) == 1


def test_replays_tell_nothing_to_the_callbacks_of_productions_langchain(
    runner: slipstream.TrainingRunner, ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """LangChain hands callbacks, such as a stream to the user, on to whatever runs inside by a context variable."""
    config: contextvars.ContextVar[Any] = contextvars.ContextVar("child_runnable_config", default=None)
    langchain = ModuleType("langchain_core.runnables.config")
    langchain.var_child_runnable_config = config  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, langchain.__name__, langchain)
    agent = runner.agent(config.get)

    token = config.set({"callbacks": ["stream"]})
    assert agent() == {"callbacks": ["stream"]}
    config.reset(token)
    assert ran[0].variables.run(ran[0].agent) is None


VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("of_the_caller")


async def test_a_replay_has_the_callers_context_variables_its_own_inputs_and_selects_nothing(run_loop: RunLoop) -> None:
    seen: list[tuple[str, list[str]]] = []
    async with run_loop(selection={"sampling": {"rate": 0.0}}) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(ALWAYS, lambda run: 0.5, repeat_time=3)

        with slipstream.openai() as client:

            @runner.agent
            def inner(messages: list[str]) -> None:
                messages.append("changed by the agent")

            @runner.agent
            def agent(messages: list[str]) -> None:
                seen.append((VARIABLE.get(), list(messages)))
                inner(messages)
                client.chat.completions.create(model="prod", messages=[{"role": "user", "content": messages[0]}])

            def program() -> None:
                VARIABLE.set("mine")
                messages = ["hello"]
                agent(messages)
                VARIABLE.set("changed by the caller")
                messages.append("changed by the caller")

            async with runner:
                await asyncio.to_thread(program)
                await until(lambda: runner.stats.finished == 3)
    assert seen == [("mine", ["hello"])] * 4
    assert (runner.stats.calls, runner.stats.finished) == (1, 3)


@pytest.mark.slow
async def test_a_generator_runs_again_to_its_end(run_loop: RunLoop) -> None:
    outputs: list[Any] = []
    async with run_loop(selection={"sampling": {"rate": 0.0}}) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(ALWAYS, lambda run: outputs.append(run.output) or 0.5, repeat_time=2)
        async with slipstream.async_openai() as client, runner:

            @runner.agent
            async def agent(count: int) -> AsyncIterator[str]:
                for number in range(count):
                    said: Any = [{"role": "user", "content": f"{number}"}]
                    stream = await client.chat.completions.create(model="prod", messages=said, stream=True)
                    async for chunk in stream:
                        yield chunk.choices[0].delta.content or ""

            found = "".join([piece async for piece in agent(2)])
            await until(lambda: runner.stats.finished == 2)
    assert found == "echo:0echo:1"
    assert all("".join(output).startswith("policysays") for output in outputs)
    assert len(loop.explorer.chats) == 4
