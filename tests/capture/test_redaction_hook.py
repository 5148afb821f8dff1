"""A redaction hook that fails lets nothing through: not into the store, and not to a calculator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from careful_hook import MARKER, REDACT
from loops import Loop, RunLoop
from on_disk import holds
from scripted import ScriptedExplorer
from serving import until


async def _counted(loop: Loop, reason: str) -> bool:
    line = f'slipstream_calls_not_captured_total{{reason="{reason}"}} 1.0'
    return line in (await loop.client.get("/metrics")).text


@pytest.mark.slow
async def test_what_it_redacts_is_not_stored_and_what_it_fails_on_not_captured(
    run_loop: RunLoop, tmp_path: Path
) -> None:
    async with run_loop(capture=REDACT, selection={"explicit_mark": {}}) as loop:
        await loop.chat(f"unknown {MARKER}")
        await until(lambda: _counted(loop, "redaction_failed"))
        await loop.chat(f"the {MARKER} swims", {"x-slipstream-task-id": "kept"})
        await until(lambda: loop.task("kept"))
        said = {"task_id": "kept", "thumbs": "up", "comment": f"unknown {MARKER}"}
        assert (await loop.client.post("/feedback", json=said)).status_code == 202, "the reward counts all the same"
        mark = {"task_id": "kept", "labels": [f"unknown {MARKER}"], "metadata": {"x": f"unknown {MARKER}"}}
        assert (await loop.client.post("/marks", json=mark)).status_code == 202
        task = await loop.task("kept")
        assert task is not None
        assert (task["labels"], task["metadata"]) == (["[redacted:hook]"], {"x": "[redacted:hook]"})
        assert holds(tmp_path, "[redacted:animal] swims")
        assert not holds(tmp_path, MARKER)
        assert not holds(tmp_path, "unknown")


@pytest.mark.slow
async def test_a_policy_answer_that_it_fails_on_is_not_scored(run_loop: RunLoop) -> None:
    async with run_loop(ScriptedExplorer(answer="unknown"), capture=REDACT) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})

        async def failed() -> Any:
            task = await loop.task("t")
            runs = [run for group in (task or {"groups": []})["groups"] for run in group["runs"]]
            return runs if [run["state"] for run in runs] == ["failed"] else None

        [run] = await until(failed)
        assert "careful failed: ValueError" in run["reason"]
