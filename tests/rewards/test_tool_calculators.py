import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from reward_runs import SEARCH, WEATHER, assistant, completion, replay, score, shadow, tool_call, user, value

from slipstream.errors import ScoringError
from slipstream.isolation import Isolation
from slipstream.metrics import Metrics
from slipstream.rewards import RewardModel, RewardsSettings

PARIS = tool_call("weather", {"city": "Paris"})
TOOLS = [WEATHER, SEARCH]
NO_PENALTIES = {"wrong_tool": 0, "redundant_call": 0, "format_error": 0, "timeout": 0}


def calls(*made: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    return completion(None, *made, finish=kwargs.pop("finish", "tool_calls"), **kwargs)


@pytest.mark.parametrize(
    ("made", "expected", "f1"),
    [
        ([PARIS], [PARIS], 1),
        ([], [], 1),
        ([], [PARIS], 0),
        ([PARIS], [], 0),
        ([tool_call("weather", {"city": "Rome"})], [PARIS], 0.5),
        ([tool_call("weather", {"city": "Paris", "days": 3})], [PARIS], 0.5 + 0.5 * 2 / 3),
        ([tool_call("search", {"city": "Paris"})], [PARIS], 0),
        ([PARIS, tool_call("search")], [PARIS], 2 / 3),
        ([tool_call("search"), PARIS], [PARIS, tool_call("search")], 1),
        (
            [tool_call("weather", '{"days": 1.0, "city": "Paris "}')],
            [tool_call("weather", {"city": "Paris", "days": 1})],
            1,
        ),
        ([tool_call("weather", {"city": "北京"})], [tool_call("weather", {"city": "北京"})], 1),
        ([tool_call("weather", "{broken")], [PARIS], 0.5),
    ],
)
async def test_f1_of_names_and_arguments(made: list[Any], expected: list[Any], f1: float) -> None:
    calculator = {"tool_calls": {"penalties": NO_PENALTIES}}
    production = calls(*expected) if expected else completion("no tool needed")
    assert await value(shadow(calls(*made), production, tools=TOOLS), calculator) == pytest.approx(f1)
    given = shadow(calls(*made), calls(tool_call("search")), tools=TOOLS, metadata={"tool_calls": expected})
    assert await value(given, calculator) == pytest.approx(f1)


async def test_the_reference_may_be_written_without_the_wrapping_of_the_api() -> None:
    metadata = {"tool_calls": [{"name": "weather", "arguments": {"city": "Paris"}}]}
    assert await value(shadow(calls(PARIS), tools=TOOLS, metadata=metadata), "tool_calls") == 1


async def test_how_much_arguments_count_is_configurable() -> None:
    run = shadow(calls(tool_call("weather", {"city": "Rome"})), calls(PARIS), tools=TOOLS)
    assert await value(run, {"tool_calls": {"argument_share": 0.2}}) == pytest.approx(0.8)


async def test_calls_of_the_reference_that_were_made_already_are_not_expected_again() -> None:
    metadata = {"tool_calls": [{"name": "weather", "arguments": {"city": "Paris"}}]}
    messages = [user(), assistant(PARIS), {"role": "tool", "content": "sunny"}]
    done = {"messages": messages, "tools": TOOLS, "metadata": metadata}
    assert await value(shadow("It is sunny.", **done), "tool_calls") == 1
    assert await value(shadow(calls(PARIS), **done), "tool_calls") == pytest.approx(-0.2)
    next_task = [*messages, {"role": "assistant", "content": "Sunny."}, user("And now?")]
    assert await value(shadow(calls(PARIS), messages=next_task, tools=TOOLS, metadata=metadata), "tool_calls") == 1


@pytest.mark.parametrize(
    ("answer", "fault", "penalty"),
    [
        (calls(PARIS), None, 0),
        (calls(tool_call("search")), "wrong_tool", -0.3),
        (calls(tool_call("invented")), "wrong_tool", -0.3),
        (calls(tool_call("search"), tool_call("invented")), "wrong_tool", -0.6),
        (calls(PARIS, PARIS), "redundant_call", -0.2),
        (calls(PARIS, tool_call("weather", '{"city":"Paris"}'), PARIS), "redundant_call", -0.4),
        (calls(PARIS, tool_call("weather", {"city": "Rome"})), None, 0),
        (calls(tool_call("weather", "{broken")), "format_error", -0.1),
        (calls(tool_call("weather", '["Paris"]')), "format_error", -0.1),
        (calls(tool_call("weather", {"town": "Paris"})), "format_error", -0.1),
        (calls(tool_call("weather", {"city": 3})), "format_error", -0.1),
        (completion('<tool_call>\n{"name": "weather"}\n</tool_call>'), "format_error", -0.1),
        (completion('{"name": "weather", "arguments": {"city": "Paris"}}'), "format_error", -0.1),
        (completion('```json\n{"name": "weather"}\n```'), "format_error", -0.1),
        (completion("[TOOL_CALLS] weather"), "format_error", -0.1),
        (completion('{"name": "Paul"}'), None, 0),
        (calls(PARIS, finish="length"), "timeout", -0.5),
    ],
)
async def test_each_penalty_is_given_for_its_fault_alone(answer: Any, fault: str | None, penalty: float) -> None:
    reward = await score(shadow(answer, calls(PARIS), tools=TOOLS), "tool_calls", clip=(-1, 1))
    names = ("wrong_tool", "redundant_call", "format_error", "timeout")
    given = {name: reward.breakdown[f"tool_calls.{name}"] for name in names}
    assert given == pytest.approx({name: penalty if name == fault else 0 for name in names})
    f1 = reward.breakdown["tool_calls.f1"]
    assert f1 is not None
    assert reward.value == pytest.approx(f1 + penalty)


async def test_a_slow_answer_is_a_timeout_where_a_limit_is_set() -> None:
    run = shadow(calls(PARIS), calls(PARIS), tools=TOOLS, latency=3.0)
    assert await value(run, {"tool_calls": {"max_latency": "2s"}}) == 0.5
    assert await value(run, {"tool_calls": {"max_latency": "5s"}}) == 1
    assert await value(run, "tool_calls") == 1


async def test_a_call_that_repeats_an_earlier_one_of_the_task_is_redundant() -> None:
    messages = [user(), assistant(PARIS), {"role": "tool", "content": "sunny"}]
    reward = await score(shadow(calls(PARIS), "It is sunny.", messages=messages, tools=TOOLS), "tool_calls")
    assert reward.breakdown["tool_calls.redundant_call"] == -0.2


async def test_a_repetition_that_the_reference_makes_too_is_not_redundant() -> None:
    run = shadow(calls(PARIS, PARIS), calls(PARIS, PARIS), tools=TOOLS)
    assert await value(run, "tool_calls") == 1


async def test_penalties_are_configurable_and_never_take_more_than_to_minus_one() -> None:
    run = shadow(calls(tool_call("invented"), tool_call("wrong")), calls(PARIS), tools=TOOLS)
    assert await value(run, {"tool_calls": {"penalties": {"wrong_tool": -0.1}}}) == pytest.approx(-0.2)
    assert await value(run, {"tool_calls": {"penalties": {"wrong_tool": -5}}}) == -1


async def test_a_broken_tool_schema_is_not_held_against_the_policy() -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "objct"}}}
    assert await value(shadow(calls(PARIS), calls(PARIS), tools=[tool]), "tool_calls") == 1


@pytest.mark.parametrize(
    "reference",
    ["weather", [1], [{"arguments": {}}], [{"name": "weather", "arguments": "{broken"}], {"name": "weather"}],
)
async def test_a_reference_that_is_no_list_of_tool_calls_fails_the_scoring(reference: Any) -> None:
    with pytest.raises(ScoringError, match=r"^tool_calls: metadata\.tool_calls"):
        await score(shadow(calls(PARIS), tools=TOOLS, metadata={"tool_calls": reference}), "tool_calls")


@pytest.mark.parametrize("calculator", ["tool_calls", "timing"])
async def test_a_task_without_tools_gives_no_basis(calculator: str) -> None:
    with pytest.raises(ScoringError, match=f"^{calculator}: the task offers no tools"):
        await score(shadow("hello", "hello"), calculator)


async def test_a_replay_is_compared_with_the_whole_task() -> None:
    production = [calls(PARIS), calls(tool_call("search")), completion("done")]
    assert await value(replay([calls(PARIS, tool_call("search")), completion("ok")], production), "tool_calls") == 1
    with pytest.raises(ScoringError, match=r"^tool_calls: the task has no production answer"):
        await score(replay([completion("ok")], []), "tool_calls")


@pytest.mark.parametrize(
    ("answer", "production", "expected"),
    [
        (calls(tool_call("search")), calls(PARIS), 1),
        (completion("words"), completion("other words"), 1),
        (completion("words"), calls(PARIS), 0),
        (calls(PARIS), completion("words"), 0),
    ],
)
async def test_timing_of_a_shadow_call(answer: Any, production: Any, expected: float) -> None:
    assert await value(shadow(answer, production, tools=TOOLS), "timing") == expected


async def test_timing_of_a_replay_is_the_share_of_steps_in_time() -> None:
    production = [calls(PARIS), completion("done")]
    assert await value(replay([calls(tool_call("search")), completion("ok")], production), "timing") == 1
    assert await value(replay([completion("ok")], production), "timing") == 0
    assert await value(replay([calls(PARIS), calls(PARIS), completion("ok")], production), "timing") == pytest.approx(
        1 / 3
    )


@pytest.mark.parametrize(
    ("answers", "reference", "expected"),
    [
        ([calls(PARIS), completion("ok")], [PARIS], 1),
        ([completion("ok")], [PARIS], 0),
        ([completion("ok")], [], 1),
        ([completion("so"), calls(PARIS), completion("ok")], [], 0),
    ],
)
async def test_timing_of_a_replay_that_production_never_answered_is_by_the_reference(
    answers: list[Any], reference: list[Any], expected: float
) -> None:
    assert await value(replay(answers, [], metadata={"tool_calls": reference}), "timing") == expected
    with pytest.raises(ScoringError, match=r"^timing: the task has no production answer"):
        await score(replay(answers, []), "timing")


@pytest.mark.parametrize(
    ("steps", "metadata", "expected"),
    [(1, {}, 1), (2, {}, 1), (4, {}, 0.5), (4, {"steps": 4}, 1), (4, {"steps": 1}, 0.25), (3, {"steps": 1.5}, 0.5)],
)
async def test_efficiency_of_a_replay(steps: int, metadata: dict[str, Any], expected: float) -> None:
    run = replay([calls(PARIS)] * (steps - 1) + [completion("ok")], [calls(PARIS), completion("ok")], metadata=metadata)
    assert await value(run, "efficiency") == expected


@pytest.mark.parametrize(
    ("answer", "position", "task_calls", "expected"),
    [
        (completion("ok"), 0, 1, 1),
        (calls(PARIS), 0, 1, 0.5),
        (calls(PARIS), 0, 2, 1),
        (completion("ok"), 1, 2, 1),
        (calls(PARIS), 1, 2, 2 / 3),
    ],
)
async def test_efficiency_of_a_shadow_call_counts_the_step_that_a_tool_call_needs(
    answer: Any, position: int, task_calls: int, expected: float
) -> None:
    assert await value(shadow(answer, position=position, task_calls=task_calls), "efficiency") == pytest.approx(
        expected
    )


@pytest.mark.parametrize("steps", [0, -1, "three", True, float("nan"), float("inf")])
async def test_a_number_of_steps_that_is_none_fails_the_scoring(steps: Any) -> None:
    with pytest.raises(ScoringError, match=r"^efficiency: metadata\.steps is expected"):
        await score(shadow("ok", metadata={"steps": steps}), "efficiency")


async def test_efficiency_without_any_reference_has_no_basis() -> None:
    with pytest.raises(ScoringError, match=r"^efficiency: the task has no metadata\.steps and no production calls"):
        await score(replay([completion("ok")], []), "efficiency")


async def test_ids_that_differ_in_their_last_digit_are_different_arguments() -> None:
    made, expected = (calls(tool_call("search", {"id": 1234567890123450 + digit})) for digit in (6, 7))
    assert await value(shadow(made, expected, tools=TOOLS), "tool_calls") == 0.5


async def test_a_number_of_hundreds_of_digits_is_wrong_and_no_failure() -> None:
    made = calls(tool_call("search", '{"id": ' + "9" * 400 + "}"))
    assert await value(shadow(made, calls(tool_call("search", {"id": 1})), tools=TOOLS), "tool_calls") == 0.5


async def test_a_schema_that_refers_to_itself_is_no_fault_of_the_policy() -> None:
    tool = {"type": "function", "function": {"name": "search", "parameters": {"$ref": "#"}}}
    made = calls(tool_call("search", {"q": "a"}))
    assert await value(shadow(made, made, tools=[tool]), "tool_calls") == 1


def doubled(times: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"minProperties": 1}
    for _ in range(times):
        schema = {"allOf": [schema, schema]}
    return schema


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parameters", "arguments"),
    [
        ({"patternProperties": {"^(a+)+$": {}}}, {"a" * 60 + "!": 1}),
        ({"properties": {"q": {"pattern": "^(a|aa|aaa)+$"}}}, {"q": "a" * 60 + "!"}),
        ({"$defs": {"x": doubled(8)}, "allOf": [{"$ref": "#/$defs/x"}] * 5000}, {"q": 1}),
    ],
)
async def test_a_schema_that_takes_for_ever_fails_its_scoring_and_no_other(
    parameters: dict[str, Any], arguments: dict[str, Any]
) -> None:
    isolation = Isolation(content_timeout=0.2)
    settings = RewardsSettings.model_validate({"calculators": ["tool_calls"], "clip": (-10, 10)})
    model = RewardModel(settings, Metrics(CollectorRegistry()), isolation)
    tool = {"type": "function", "function": {"name": "search", "parameters": parameters}}
    made = calls(tool_call("search", arguments))
    with pytest.raises(ScoringError, match=r"^rewards\.calculators\[0\] \(tool_calls\): took longer than 0\.2 s"):
        await model.score(shadow(made, made, tools=[tool]))
    assert await value(shadow(calls(PARIS), calls(PARIS), tools=TOOLS), "tool_calls") == 1
    await asyncio.to_thread(isolation.close)


@pytest.mark.slow
async def test_an_answer_that_takes_all_memory_fails_its_scoring_alone() -> None:
    isolation = Isolation(content_memory=200 * 1024**2, content_timeout=120)
    settings = RewardsSettings.model_validate({"calculators": [{"json_schema": {"schema": {"type": "array"}}}]})
    model = RewardModel(settings, Metrics(CollectorRegistry()), isolation)
    with pytest.raises(ScoringError, match=r"^rewards\.calculators\[0\] \(json_schema\): needed more than 200 MiB"):
        await model.score(shadow("[" + "[]," * 5_000_000 + "[]]"))
    assert (await model.score(shadow("[]"))).value == 1
    await asyncio.to_thread(isolation.close)


async def test_malformed_arguments_that_differ_repeat_nothing() -> None:
    made = calls(tool_call("search", "{a"), tool_call("search", "{b"))
    reward = await score(shadow(made, calls(PARIS), tools=TOOLS), "tool_calls")
    assert reward.breakdown["tool_calls.redundant_call"] == 0
    assert reward.breakdown["tool_calls.format_error"] == pytest.approx(-0.2)


@pytest.mark.parametrize("calculator", ["tool_calls", "agreement"])
async def test_too_many_tool_calls_fail_the_scoring_instead_of_being_compared_in_pairs(calculator: str) -> None:
    many = calls(*[PARIS] * 2500)
    with pytest.raises(ScoringError, match="too many tool calls to compare: 2500 with 2500"):
        await value(shadow(many, many, tools=TOOLS), calculator)
