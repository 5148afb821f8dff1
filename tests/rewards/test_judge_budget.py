"""`rewards.judge_calls_per_hour`: answered runs wait for their reward, and are not dropped."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from loops import RunLoop
from reward_runs import completion
from serving import until


@pytest.mark.slow
async def test_runs_wait_for_a_judge_that_was_asked_as_often_as_it_may_be(
    run_loop: RunLoop, serve: Callable[..., Any]
) -> None:
    service = await serve(*[(200, completion(json.dumps({"accuracy": 5})))] * 5)
    judge = {"judge": {"base_url": f"{service.url}/v1", "model": "big", "criteria": {"accuracy": "?"}, "cache": 0}}
    rewards = {"calculators": [judge], "judge_calls_per_hour": 2}
    async with run_loop(rewards=rewards, runs={"repeat_time": 5}) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})

        async def spent() -> bool:
            budget = (await loop.status())["budget"]["judge"]["requests"]
            return bool(budget == {"spent_last_hour": 2, "limit": 2})

        async def answered() -> bool:
            runs = (await loop.status())["runs"]
            return bool(runs == {"scored": 2, "answered": 3})

        await until(spent)
        await until(answered)
        assert len(service.requests) == 2
    async with run_loop(rewards={"calculators": [judge]}, runs={"repeat_time": 5}) as loop:
        await until(lambda: loop.ready(5))
        assert len(service.requests) == 5
