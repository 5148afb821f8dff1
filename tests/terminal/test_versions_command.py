"""`slipstream versions` against a running sidecar."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
from checkpoint_job import CheckpointJob
from loops import Loop, RunLoop
from serving import until


async def command(loop: Loop, *words: str, config: Path) -> tuple[int, str, str]:
    """Run it as a user does: exit code, stdout, stderr."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "slipstream", "versions", *words, "--url", loop.url, "--config", str(config),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=os.environ | {"COLUMNS": "160"},
    )  # fmt: skip
    out, errors = await process.communicate()
    return process.returncode or 0, out.decode(), errors.decode()


@pytest.fixture
def job(tmp_path: Path) -> CheckpointJob:
    return CheckpointJob(tmp_path / "job")


@pytest.mark.slow
async def test_versions_are_shown_kept_named_and_released(
    run_loop: RunLoop, job: CheckpointJob, tmp_path: Path
) -> None:
    async with run_loop(serving={"checkpoints": str(job.path), "keep_newest": 0}) as loop:

        async def run(*words: str) -> str:
            code, out, errors = await command(loop, *words, config=tmp_path / "none.yaml")
            assert (code, errors) == (0, ""), errors
            return out

        job.publish(1, parent=0, experiences=8, metrics={"loss": 0.25})
        job.publish(2)

        async def found() -> bool:
            return (await loop.client.get("/versions/2")).status_code == 200

        await until(found)
        assert await run("aliases") == "there is no alias\n"
        assert await run("keep", "1") == f"version 1: kept in {job.path}/kept/1\n"
        assert await run("alias", "champion", "1") == "champion: version 1\n"
        assert await run("alias", "champion", "2") == "champion: version 2, and meant 1\n"
        table = await run("list")
        assert re.search(r"│ 2 +│ kept +│ champion +│ by alias", table), table
        assert re.search(r"│ 1 +│ kept +│ +│ by hand", table), table
        shown = await run("show", "1")
        assert re.search(r"trained on: .*experiences 8", shown), shown
        assert re.search(r"metrics: .*loss 0\.25", shown), shown
        assert "champion" in await run("aliases")
        assert len(re.findall(r"│ [12] ", await run("aliases", "--of", "champion"))) == 2
        assert await run("alias", "champion", "--remove") == "champion: removed, and meant version 2\n"
        assert await run("release", "2") == "version 2: not kept\n"
        assert not (job.path / "kept" / "2").exists()

        code, out, errors = await command(loop, "keep", "9", config=tmp_path / "none.yaml")
        assert (code, out, errors) == (2, "", "slipstream: no version has the number 9\n")
        code, _, errors = await command(loop, "alias", "champion", config=tmp_path / "none.yaml")
        assert code == 2
        assert "--remove" in errors
