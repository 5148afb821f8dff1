"""`slipstream up` with the files that the project ships: from an agent's calls to a version that they trained."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from ports import free_port
from scripted import production_app
from serving import serving, until

ROOT = Path(__file__).parents[2]
TASKS = 6
REPEAT_TIME = 4


def _descendant(pid: int, words: str) -> int:
    """The uppermost process below `pid` whose command line holds `words`; what writes its log is below it."""

    def below(parent: int) -> Iterator[int]:
        for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            yield int(child)
            yield from below(int(child))

    return next(
        child
        for child in below(pid)
        if words in Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    )


def _taken(folder: Path) -> list[tuple[int, int]]:
    """Each training step, and how many experiences it took."""
    [database] = folder.glob("checkpoints/**/embedded_*.db")
    buffer = sqlite3.connect(database)
    taken = buffer.execute("SELECT train_step, count(*) FROM exp_buffer GROUP BY train_step ORDER BY 1").fetchall()
    buffer.close()
    return taken


@pytest.mark.embedded
@pytest.mark.slow
async def test_agents_calls_become_new_versions_even_when_the_trainer_is_killed(
    tiny_model: Path, tmp_path: Path
) -> None:
    sidecar_port, explorer_port = free_port(), free_port()
    for name in ("sidecar.yaml", "explorer.yaml", "trainer.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    async with serving(production_app()) as production_url:
        environment = {
            **os.environ,
            "MODEL_PATH": str(tiny_model),
            "CHECKPOINT_ROOT_DIR": str(tmp_path / "checkpoints"),
            "EXPLORER_PORT": str(explorer_port),
            "SLIPSTREAM_LISTEN": f"127.0.0.1:{sidecar_port}",
            "SLIPSTREAM_PRODUCTION__BASE_URL": f"{production_url}/v1",
            "SLIPSTREAM_EXPLORER__BASE_URL": f"http://127.0.0.1:{explorer_port}",
            "SLIPSTREAM_SELECTION": "{sampling: {rate: 1}}",
            "SLIPSTREAM_RUNS__REPEAT_TIME": str(REPEAT_TIME),
            "SLIPSTREAM_REWARDS__CALCULATORS": "[{length: {max: 40}}]",
        }
        overlay = str(ROOT / "overlays" / "small-cpu.yaml")
        command = (sys.executable, "-m", "slipstream", "up", "--overlay", overlay)
        up = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, env=environment)
        try:
            await _work(f"http://127.0.0.1:{sidecar_port}", up.pid, tmp_path)
        finally:
            up.send_signal(signal.SIGTERM)
            await up.wait()
    assert up.returncode == 0


async def _work(url: str, pid: int, folder: Path) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60) as control:

        async def ready() -> bool:
            try:
                return (await control.get("/readyz")).json()["explorer"] is True
            except httpx.TransportError:
                return False

        await until(ready, 90)
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-agent") as agent:
            for number in range(TASKS):
                answer = await agent.chat.completions.create(
                    model="prod",
                    messages=[{"role": "user", "content": f"question {number}"}],
                    max_tokens=12,
                )
                assert answer.choices[0].message.content == f"echo: question {number}"

        async def trained(steps: int) -> Any:
            await control.post("/commit")
            status = (await control.get("/status")).json()
            return (status["policy"]["version"] or 0) >= steps and status

        await until(lambda: trained(1), 90)
        os.kill(_descendant(pid, "slipstream trainer"), signal.SIGKILL)
        status = await until(lambda: trained(TASKS * REPEAT_TIME // 8), 120)

    assert status["experiences_delivered"] == TASKS * REPEAT_TIME
    assert status["groups"] == {"delivered": TASKS}
    assert _taken(folder) == [(1, 8), (2, 8), (3, 8)], "every delivered experience is in one step"
