import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from reward_runs import completion, reward_model, score, shadow

from slipstream.errors import ScoringError

CRITERIA = {"accuracy": "Is it right?", "tone": "Is it kind?"}


def verdict(**scores: Any) -> tuple[int, Any]:
    return 200, completion(json.dumps(scores))


def judge(url: str, **parameters: Any) -> dict[str, Any]:
    return {"judge": {"base_url": f"{url}/v1", "model": "big", "criteria": CRITERIA, "backoff": 0, **parameters}}


async def test_criteria_from_one_to_five_become_a_mean_from_zero_to_one(serve: Callable[..., Any]) -> None:
    service = await serve(verdict(accuracy=5, tone=2))
    run = shadow("It is 4.", "It is four.", metadata={"reference": "4"})
    reward = await score(run, judge(service.url, api_key="sk-1", instructions="Be strict."))
    assert reward.value == pytest.approx((1 + 0.25) / 2)
    assert reward.breakdown == {"judge": reward.value, "judge.accuracy": 1, "judge.tone": 0.25}
    (asked,) = service.requests
    assert asked["path"] == "/v1/chat/completions"
    assert service.headers[0]["authorization"] == "Bearer sk-1"
    assert (asked["model"], asked["temperature"]) == ("big", 0)
    system, material = asked["messages"][0]["content"], json.loads(asked["messages"][1]["content"])
    assert "- accuracy: Is it right?" in system
    assert "Be strict." in system
    assert material["answer"]["text"] == "It is 4."
    assert material["reference"] == "4"
    assert "another_answer" not in material
    schema = asked["response_format"]["json_schema"]
    assert schema["strict"] is True
    assert schema["schema"]["required"] == ["accuracy", "tone"]


async def test_production_s_answer_and_other_fields_are_sent_where_asked_for(serve: Callable[..., Any]) -> None:
    service = await serve(verdict(accuracy=5, tone=5))
    extra = {"extra_body": {"seed": 1}, "show_production": True, "reference_key": "gold"}
    await score(shadow("4", "four", metadata={"gold": 4, "reference": 5}), judge(service.url, **extra))
    (asked,) = service.requests
    material = json.loads(asked["messages"][1]["content"])
    assert material["another_answer"]["content"] == "four"
    assert material["reference"] == 4
    assert asked["seed"] == 1
    assert "temperature" not in asked
    assert "authorization" not in service.headers[0]


@pytest.mark.sampled
@pytest.mark.parametrize(
    "rubbish",
    [
        (200, b"<html>"),
        (200, b"\xff\xfe"),
        (200, []),
        (200, {}),
        (200, {"choices": []}),
        (200, {"choices": [1]}),
        (200, {"choices": [{"message": "x"}]}),
        (200, completion(None)),
        (200, completion("Five out of five!")),
        verdict(accuracy=5),
        verdict(accuracy=5, tone=6),
        verdict(accuracy=5, tone=0),
        verdict(accuracy=5, tone=4.5),
        verdict(accuracy=5, tone="4"),
        verdict(accuracy=5, tone=True),
        verdict(accuracy=5, tone=4, extra=1),
    ],
)
async def test_rubbish_is_asked_again_and_never_becomes_a_reward(serve: Callable[..., Any], rubbish: Any) -> None:
    service = await serve(rubbish)
    with pytest.raises(ScoringError, match=r"^judge: an answer that cannot be used"):
        await score(shadow("4"), judge(service.url, attempts=2))
    assert len(service.requests) == 2
    service = await serve(rubbish, verdict(accuracy=5, tone=5))
    assert (await score(shadow("4"), judge(service.url))).value == 1


async def test_429_and_5xx_are_tried_again(serve: Callable[..., Any]) -> None:
    service = await serve((500, b"oops"), (429, {}), verdict(accuracy=5, tone=5))
    assert (await score(shadow("4"), judge(service.url))).value == 1
    assert len(service.requests) == 3
    service = await serve((503, {}))
    with pytest.raises(ScoringError, match=r"^judge: HTTP 503"):
        await score(shadow("4"), judge(service.url, attempts=2))
    assert len(service.requests) == 2


async def test_another_4xx_is_not_tried_again_and_is_explained(serve: Callable[..., Any]) -> None:
    service = await serve((400, {"error": {"message": "response_format is not supported"}}))
    with pytest.raises(ScoringError, match=r"^judge: HTTP 400: response_format is not supported"):
        await score(shadow("4"), judge(service.url))
    assert len(service.requests) == 1


async def test_a_judge_that_hangs_ends_by_the_timeout(serve: Callable[..., Any]) -> None:
    service = await serve(None, verdict(accuracy=5, tone=5))
    assert (await score(shadow("4"), judge(service.url, timeout="200ms"))).value == 1
    service = await serve(None)
    with pytest.raises(ScoringError, match=r"^judge: no answer within 0\.05 s"):
        await score(shadow("4"), judge(service.url, timeout="50ms", attempts=2))


async def test_a_judge_that_is_away_fails_the_scoring(unused_tcp_port: int) -> None:
    with pytest.raises(ScoringError, match=r"^judge: ConnectError"):
        await score(shadow("4"), judge(f"http://127.0.0.1:{unused_tcp_port}", attempts=2))


async def test_the_same_content_is_judged_once(serve: Callable[..., Any]) -> None:
    service = await serve(verdict(accuracy=5, tone=1))
    model = reward_model(calculators=[judge(service.url, cache=2)])
    first = await model.score(shadow("a"))
    assert await model.score(shadow("a")) == first
    assert len(service.requests) == 1
    await model.score(shadow("b"))
    await model.score(shadow("a"))
    await model.score(shadow("c"))  # "b", the least recently used, goes
    await model.score(shadow("a"))
    assert len(service.requests) == 3
    await model.score(shadow("b"))
    assert len(service.requests) == 4
    await model.aclose()


async def test_failures_are_not_remembered_and_the_cache_can_be_off(serve: Callable[..., Any]) -> None:
    service = await serve((500, {}), verdict(accuracy=5, tone=5))
    model = reward_model(calculators=[judge(service.url, attempts=1, cache=0)])
    with pytest.raises(ScoringError):
        await model.score(shadow("a"))
    for _ in range(2):
        assert (await model.score(shadow("a"))).value == 1
    assert len(service.requests) == 3
    await model.aclose()


async def test_no_more_questions_at_once_than_allowed(serve: Callable[..., Any]) -> None:
    service = await serve(verdict(accuracy=5, tone=5))
    service.hold = 0.02
    model = reward_model(calculators=[judge(service.url, concurrency=2)])
    await asyncio.gather(*(model.score(shadow(str(n))) for n in range(6)))
    assert (len(service.requests), service.most_open) == (6, 2)
    await model.aclose()
