"""A tuning as a process that a test can stop: `tuning_script.py STEPS [URL [notebook]]`, in the folder of its dataset
`d`; `notebook` calls `tune` as a notebook does, in a loop that runs."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any

import httpx

from slipstream_client import AlgorithmConfig, DatasetConfig, TunerModelConfig, WorkflowOutput, tune


def one_call(task: dict[str, Any], model: Any) -> WorkflowOutput:
    """Without the openai SDK, and without what the tests import: a process more or less is to be cheap."""
    messages = [{"role": "user", "content": task["question"]}]
    answer = httpx.post(f"{model.base_url}/chat/completions", json={"messages": messages}, timeout=60, trust_env=False)
    answer.raise_for_status()
    return WorkflowOutput(reward=0.5)


def main(steps: str, url: str | None = None) -> None:
    tune(
        workflow_func=one_call,
        train_dataset=DatasetConfig(path="d", total_steps=int(steps)),
        model=TunerModelConfig(model_path="model", max_model_len=128, max_tokens=8),
        algorithm=AlgorithmConfig(group_size=2, batch_size=2, learning_rate=1e-3),
        experiment_name="experiment",
        explorer_url=url,
    )


async def cell(steps: str, url: str) -> None:
    """The kernel's own loop leaves SIGINT alone, unlike `asyncio.run`."""
    main(steps, url)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where the tests run in the background
    match sys.argv[1:]:
        case [steps, url, "notebook"]:
            loop = asyncio.new_event_loop()
            loop.run_until_complete(cell(steps, url))
        case [steps, *url]:
            main(steps, *url)
