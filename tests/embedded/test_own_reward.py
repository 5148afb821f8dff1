"""A reward function beside sidecar.yaml, through a real `slipstream up`: it is found, and its errors are logged."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path

import httpx
import pytest
from ports import free_port
from scripted import production_app
from serving import serving, until

ROOT = Path(__file__).parents[2]
RUNS = 4
REWARDS = """
def score(run):
    if run.run_id == 0:
        return 1 / (run.run_id)
    return 2.5 if run.run_id == 1 else 0.5
"""


@pytest.mark.slow
@pytest.mark.embedded
async def test_a_reward_function_works_with_up_and_its_errors_are_in_the_log(tiny_model: Path, tmp_path: Path) -> None:
    port, explorer_port = free_port(), free_port()
    for name in ("sidecar.yaml", "explorer.yaml", "trainer.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "my_rewards.py").write_text(REWARDS)
    async with serving(production_app()) as production_url:
        environment = {
            **os.environ,
            "MODEL_PATH": str(tiny_model),
            "CHECKPOINT_ROOT_DIR": str(tmp_path / "checkpoints"),
            "EXPLORER_PORT": str(explorer_port),
            "SLIPSTREAM_LISTEN": f"127.0.0.1:{port}",
            "SLIPSTREAM_PRODUCTION__BASE_URL": f"{production_url}/v1",
            "SLIPSTREAM_EXPLORER__BASE_URL": f"http://127.0.0.1:{explorer_port}",
            "SLIPSTREAM_SELECTION": "{sampling: {rate: 1}}",
            "SLIPSTREAM_RUNS__REPEAT_TIME": str(RUNS),
            "SLIPSTREAM_REWARDS__CALCULATORS": "[{python: 'my_rewards:score'}]",
        }
        overlay = str(ROOT / "overlays" / "small-cpu.yaml")
        command = (sys.executable, "-P", "-m", "slipstream", "up", "--overlay", overlay)
        up = await asyncio.create_subprocess_exec(
            *command, cwd=tmp_path, env=environment, stdout=asyncio.subprocess.PIPE
        )
        reading = asyncio.create_task(up.communicate())
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client:
                await until(lambda: _ready(client, up), 300)
                for text in ("one", "two"):
                    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
                    await client.post("/v1/chat/completions", json=body)
                await until(lambda: _counts(client, errors=2, clipped=2), 120)
        finally:
            up.send_signal(signal.SIGTERM)
            output, _ = await reading
    log = output.decode()
    assert log.count("ZeroDivisionError: division by zero") == 1, "the traceback, once"
    assert "my_rewards.py" in log
    failed = [line for line in log.splitlines() if "reward_calculator_failed" in line]
    assert len(failed) == 2
    assert all("task_id" in line for line in failed)
    assert log.count("reward_clipped") == 1
    assert up.returncode == 0


async def _ready(client: httpx.AsyncClient, up: asyncio.subprocess.Process) -> bool:
    assert up.returncode is None, "slipstream up ended"
    try:
        return (await client.get("/readyz")).is_success
    except httpx.TransportError:
        return False


async def _counts(client: httpx.AsyncClient, *, errors: int, clipped: int) -> bool:
    lines = (await client.get("/metrics")).text.splitlines()
    wanted = {f"slipstream_reward_errors_total {errors}.0", f"slipstream_rewards_clipped_total {clipped}.0"}
    return wanted <= set(lines)
