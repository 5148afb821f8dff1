"""The whole way of an experience, with Trinity's own code at its end."""

from __future__ import annotations

import pytest
from real_sidecar import StartSidecar
from real_trinity import RealTrinity
from scripted_engine import ScriptedEngine
from serving import until


async def test_a_group_reaches_the_trainers_table_with_its_advantages(
    trinity: RealTrinity, engine: ScriptedEngine, start_sidecar: StartSidecar
) -> None:
    async with start_sidecar(trinity) as sidecar:
        answer = await sidecar.chat("hello", {"x-slipstream-task-id": "t"})
        assert answer["choices"][0]["message"]["content"] == "echo: hello"
        await until(lambda: sidecar.ready(2), 30)  # the engine's rewards alternate: one group after the other
        await sidecar.group("t2", ready=4)
        counts = await sidecar.commit()
        assert (counts["groups"], counts["experiences"]) == (2, 4)
        assert [chat["model"] for chat in engine.chats] == ["policy"] * 4

        rows = trinity.trained()
        assert sorted((row.task_id, row.run_id) for row in rows) == [("t.0", 0), ("t.0", 1), ("t2.0", 0), ("t2.0", 1)]
        assert sorted(row.reward for row in rows if row.task_id == "t.0") == [0.0, 1.0]
        for row in rows:
            assert row.advantage == pytest.approx(0.7071 if row.reward else -0.7071, abs=1e-3)
            assert row.response_tokens == 2
        assert {row["consumed"] for row in trinity.history()} == {1}

        status = await sidecar.status()
        assert status["explorer"]["up"] is True
        assert status["policy"]["version"] == 0
