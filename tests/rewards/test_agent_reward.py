from typing import Any

import pytest
from reward_runs import SEARCH, WEATHER, completion, replay, score, shadow, tool_call

from slipstream.rewards import Reward

PARIS = tool_call("weather", {"city": "Paris"})
PARTS = ("task_completion", "tool_accuracy", "efficiency", "timing_quality", "format_compliance")


async def test_the_five_components_have_the_default_weights() -> None:
    answers = [completion(None, PARIS), completion(None, tool_call("search")), completion("Rain", finish="length")]
    run = replay(answers, [completion(None, PARIS), completion("Sunny")], metadata={"reference": "sunny"})
    reward = await score(run, "agent", clip=(-1, 1))
    parts = [reward.breakdown[f"agent.{part}"] for part in PARTS]
    f1 = 2 / 3
    assert parts == pytest.approx([0, f1 - 0.3 - 0.5, 2 / 3, 1 / 3, 2 / 3])
    weights = (0.4, 0.25, 0.15, 0.10, 0.10)
    assert reward.value == pytest.approx(
        sum(w * part for w, part in zip(weights, parts, strict=True) if part is not None)
    )
    assert reward.breakdown["agent"] == reward.value


async def test_a_perfect_answer_gets_one() -> None:
    run = shadow(completion(None, PARIS), completion(None, PARIS), tools=[WEATHER, SEARCH])
    assert (await score(run, "agent")).value == pytest.approx(1.0)


async def test_components_without_basis_are_left_out_and_shown_as_null() -> None:
    reward = await score(shadow("It is 5", "It is 4", metadata={"reference": 4}), "agent")
    assert [reward.breakdown[f"agent.{part}"] for part in PARTS] == [0, None, 1, None, 1]
    assert reward.value == pytest.approx((0.15 + 0.10) / (0.4 + 0.15 + 0.10))


async def test_what_the_policy_answers_does_not_change_which_components_count() -> None:
    answers = ["words", completion(None, PARIS), completion(None), completion("<tool_call>", finish="length")]
    for tools in ([WEATHER], None):
        judged = [await score(shadow(answer, tools=tools), "agent") for answer in answers]
        missing = [{name for name, part in reward.breakdown.items() if part is None} for reward in judged]
        assert all(names == missing[0] for names in missing)


async def test_task_completion_is_agreement_where_the_task_has_no_reference() -> None:
    same, other = [await score(shadow(text, "It is sunny"), "agent") for text in ("It is sunny", "Perhaps rain?")]
    assert same.breakdown["agent.task_completion"] == 1
    part = other.breakdown["agent.task_completion"]
    assert part is not None
    assert part < 0.3


async def test_an_intermediate_call_is_not_asked_for_the_final_answer() -> None:
    run = shadow(
        completion(None, PARIS),
        completion(None, PARIS),
        tools=[WEATHER],
        metadata={"reference": "sunny"},
        position=0,
        task_calls=2,
    )
    assert (await score(run, "agent")).breakdown["agent.task_completion"] == 1


async def test_silence_does_not_agree_with_a_hidden_answer() -> None:
    given = {"reference": "sunny", "tool_calls": [{"name": "weather", "arguments": {"city": "Paris"}}], "steps": 2}

    async def reward(answer: dict[str, Any]) -> Reward:
        hidden: dict[str, Any] = {}
        return await score(shadow(answer, hidden, tools=[WEATHER], metadata=given, task_calls=2), "agent", clip=(-1, 1))

    right, silent = await reward(completion(None, PARIS)), await reward(completion(""))
    assert right.breakdown["agent.task_completion"] is silent.breakdown["agent.task_completion"] is None
    assert right.value == pytest.approx(1)
    assert silent.value < 0.5


async def test_the_key_of_the_reference_is_configurable() -> None:
    run = shadow("It is 4", metadata={"gold": 4, "reference": 5})
    assert (await score(run, {"agent": {"key": "gold"}})).breakdown["agent.task_completion"] == 1
