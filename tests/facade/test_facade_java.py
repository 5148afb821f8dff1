"""A client that refuses fields which Trinity's answers do not have: AgentScope Java's."""

from __future__ import annotations

import pytest
from facade_client import ask, trained
from loops import RunLoop
from strict_java import strict_java


@pytest.mark.slow
async def test_a_strict_java_client_reads_the_answers_to_feedback_and_commits(run_loop: RunLoop) -> None:
    async with run_loop(facade={"group_size": 2}) as loop:
        ids = [await ask(loop) for _ in range(2)]
        runs = [
            {"msg_ids": [msg_id], "reward": run_id, "task_id": "t", "run_id": str(run_id)}
            for run_id, msg_id in enumerate(ids)
        ]
        unknown = {"msg_ids": ["nobody's"], "reward": 0.5, "task_id": None, "run_id": None}
        *taken, told, committed = await strict_java(f"{loop.url}/explorer", *runs, unknown)
        assert [*taken, committed] == [{"status": "success", "message": None}] * 3
        assert told == {"status": "success", "message": 'unknown: ["nobody\'s"]'}
        assert trained(loop) == [[("t", 0), ("t", 1)]]
