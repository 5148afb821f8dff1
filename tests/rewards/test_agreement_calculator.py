import time

import pytest
from reward_runs import WEATHER, completion, replay, score, shadow, tool_call, value

from slipstream.errors import ScoringError
from slipstream.trajectory import Feedback

ENGLISH = (
    "You can return the shoes within thirty days, and we refund the full price.",
    "Shoes can be returned within 30 days; the full price is refunded.",
    "The museum opens at nine and closes at six, except on Mondays.",
)
CHINESE = (
    "您可以在三十天内退货，我们会全额退款。",
    "三十天内可以退货，并且全额退款。",
    "博物馆每天上午九点开门，周一闭馆。",
)


@pytest.mark.parametrize(("text", "similar", "different"), [ENGLISH, CHINESE])
async def test_likeness_tells_similar_from_different_in_both_languages(text: str, similar: str, different: str) -> None:
    same, near, far = [await value(shadow(answer, text), "agreement") for answer in (text, similar, different)]
    assert same == 1
    assert near > 0.35
    assert far < 0.25


@pytest.mark.parametrize(
    ("answer", "production", "expected"),
    [
        ("是", "是", 1),
        ("是", "否", 0),
        ("Yes", " yes\n", 1),
        ("ＯＫ", "ok", 1),
        ("", "", 1),
        ("", "words", 0),
        ("words", "", 0),
    ],
)
async def test_short_and_empty_answers(answer: str, production: str, expected: float) -> None:
    assert await value(shadow(answer, production), "agreement") == expected


async def test_long_answers_take_little_time() -> None:
    long = "今天天气 is very good. " * 5000
    started = time.monotonic()
    assert await value(shadow(long + "x", long), "agreement") > 0.99
    assert time.monotonic() - started < 5


async def test_tool_calls_are_compared_as_well() -> None:
    paris, rome = (tool_call("weather", {"city": city}) for city in ("Paris", "Rome"))
    production = completion(None, paris)
    for answer, expected in [
        (completion(None, paris), 1),
        (completion("Let me look.", paris), 1),
        (completion(None, rome), 0.5),
        (completion("Sunny"), 0),
    ]:
        assert await value(shadow(answer, production, tools=[WEATHER]), "agreement") == expected
    both = shadow(completion("Sunny", rome), completion("Sunny", paris), tools=[WEATHER])
    assert await value(both, "agreement") == 0.75
    assert await value(shadow(completion("Sunny", rome), "Sunny", tools=[WEATHER]), "agreement") == 0.5
    assert await value(both, {"agreement": {"argument_share": 1}}) == 0.5


@pytest.mark.parametrize(
    ("posted", "expected"),
    [((), 1), ((1.0,), 1), ((0.0,), 0), ((1.0, 0.2), 0), ((0.2, 1.0), 1), ((0.0, None), 0)],
)
async def test_with_feedback_it_differs_from_a_disliked_answer(
    posted: tuple[float | None, ...], expected: float
) -> None:
    run = shadow("the same", "the same", production_feedback=tuple(Feedback(reward) for reward in posted))
    assert await value(run, {"agreement": {"with_feedback": True}}) == expected
    assert await value(run, "agreement") == 1


async def test_where_a_like_begins_is_configurable() -> None:
    run = shadow("the same", "the same", production_feedback=(Feedback(0.6),))
    assert await value(run, {"agreement": {"with_feedback": True, "like_from": 0.7}}) == 0


async def test_a_replay_is_compared_with_the_task_as_a_whole() -> None:
    paris = tool_call("weather", {"city": "Paris"})
    production = [completion(None, paris), completion("It is sunny.")]
    assert await value(replay([completion(None, paris), completion("It is sunny.")], production), "agreement") == 1
    assert await value(replay([completion("It is sunny.")], production), "agreement") == 0.5
    with pytest.raises(ScoringError, match=r"^agreement: the task has no production answer"):
        await score(replay([completion("ok")], []), "agreement")
