"""A reward function beside sidecar.yaml, through a real `slipstream up`: it is found, and its errors are logged."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from running_up import slipstream_up
from scripted import production_app
from serving import serving, until

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
    (tmp_path / "my_rewards.py").write_text(REWARDS)
    async with (
        serving(production_app()) as production_url,
        slipstream_up(
            tmp_path,
            tiny_model,
            production_url,
            SLIPSTREAM_SELECTION="{sampling: {rate: 1}}",
            SLIPSTREAM_RUNS__REPEAT_TIME=str(RUNS),
            SLIPSTREAM_REWARDS__CALCULATORS="[{python: 'my_rewards:score'}]",
        ) as up,
    ):
        for text in ("one", "two"):
            body = {"model": "m", "messages": [{"role": "user", "content": text}]}
            await up.client.post("/v1/chat/completions", json=body)
        await until(lambda: _counts(up.client, errors=2, clipped=2), 120)
    log = up.log
    failed = [line for line in log.splitlines() if "reward_calculator_failed" in line]
    assert len(failed) == 2
    assert all("ZeroDivisionError" in line and "task_id" in line for line in failed)
    assert ["Traceback" in line and "my_rewards.py" in line for line in failed] == [True, False], "the traceback, once"
    assert "division by zero" not in log, "a message may quote an answer"
    assert log.count("reward_clipped") == 1
    assert up.exit_code == 0


async def _counts(client: httpx.AsyncClient, *, errors: int, clipped: int) -> bool:
    lines = (await client.get("/metrics")).text.splitlines()
    wanted = {f"slipstream_reward_errors_total {errors}.0", f"slipstream_rewards_clipped_total {clipped}.0"}
    return wanted <= set(lines)
