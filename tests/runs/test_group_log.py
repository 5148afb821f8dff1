"""One line a group in the log, however many runs it has."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from loops import RunLoop
from serving import until
from structlog.testing import capture_logs

CHAT = "/v1/chat/completions"


def told(logs: list[Any], *levels: str) -> Counter[str]:
    """How often each event about a run or a group was logged at one of these levels."""
    found = Counter(line["event"] for line in logs if line["log_level"] in levels)
    return Counter({event: count for event, count in found.items() if event.startswith(("run_", "group_", "scoring_"))})


@pytest.mark.slow
async def test_a_group_has_one_line_with_its_rewards(run_loop: RunLoop) -> None:
    rewards = {"calculators": [{"python": "test_group_log:by_run"}]}
    with capture_logs() as logs:
        async with run_loop(runs={"repeat_time": 4}, rewards=rewards) as loop:
            loop.explorer.version = 3
            await until(lambda: _serves(loop, 3))
            await loop.chat("hello", {"x-slipstream-task-id": "t"})
            await until(lambda: loop.ready(4))
    [line] = [line for line in logs if line["event"] == "group_ended"]
    assert line == {
        "event": "group_ended", "log_level": "info", "task_id": "t", "group_id": "t.0", "state": "ready", "runs": 4,
        "failed": 0, "reward_mean": 0.375, "reward_min": 0.0, "reward_max": 0.75, "policy_version": 3,
    }  # fmt: skip
    assert told(logs, "info", "warning") == {"group_ended": 1}
    assert told(logs, "debug")["run_scored"] == 4


async def test_a_group_that_fails_has_a_line_with_the_reason_and_one_at_its_end(run_loop: RunLoop) -> None:
    with capture_logs() as logs:
        async with run_loop(runs={"repeat_time": 4}) as loop:
            loop.explorer.faults[CHAT] = [400] * 4
            await loop.chat("hello", {"x-slipstream-task-id": "t"})

            async def failed() -> bool:
                return (await loop.status())["runs"].get("failed") == 4

            await until(failed)
    assert told(logs, "info", "warning") == {"run_failed": 1, "group_ended": 1}
    [line] = [line for line in logs if line["event"] == "group_ended"]
    assert (line["log_level"], line["state"], line["runs"], line["failed"]) == ("warning", "dropped", 4, 4)


async def _serves(loop: Any, version: int) -> bool:
    return bool((await loop.status())["policy"]["version"] == version)


def by_run(run: Any) -> float:
    """A reward that differs within a group."""
    return float(run.run_id) / 4
