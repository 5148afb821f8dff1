"""Runs in Trinity's environment with FILE URL_OF_THE_POLICY URL_OF_THE_JUDGE: what its worker does with a YAML.

Trinity's own: the loader and the validators, the reader of tasks, the registry that imports the workflow class, the
runner of workflows, the wrappers of models and the experiences. Not real: the engines, which are the two URLs, and the
allocator that would find them on Ray. Prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import serve_trinity  # noqa: F401 - Trinity needs the names that it stands in for
import trinity.explorer.workflow_runner as runner_module
from trinity.buffer.reader.file_reader import TaskFileReader
from trinity.common.config import Config, TasksetConfig, load_config
from trinity.common.config_validator import validators
from trinity.common.experience import Experience
from trinity.common.models.model import ModelWrapper


def checked(path: str) -> Config:
    config = load_config(path)
    for validator in validators:
        validator.validate(config)
    return config


def allocator(urls: dict[str, str]) -> Any:
    """Finds the engines at their URLs, by their role."""

    async def version() -> int:
        return 3

    actor = SimpleNamespace(get_model_version=SimpleNamespace(remote=version))

    def get_model(config: Any, role: str, engine_id: int) -> ModelWrapper:
        return ModelWrapper(model=actor, config=config, api_address=urls[role])

    return lambda explorer: SimpleNamespace(get_model=get_model)


async def results(runner: Any, taskset: TasksetConfig, repeat_times: int) -> list[dict[str, Any]]:
    reader = TaskFileReader(taskset.to_storage_config())
    found = []
    for task in await reader.read(batch_size=4):
        status, packed = await runner.run_task(task, batch_id="1", repeat_times=repeat_times)
        experiences = Experience.deserialize_many(packed) if packed else []
        found.append(
            {
                "task": task.raw_task["question"],
                "runs": [status.completed_runs, status.total_runs],
                "message": status.message,
                "metrics": status.metrics,
                "experiences": [
                    {
                        "run": experience.eid.run,
                        "step": experience.eid.step,
                        "reward": experience.reward,
                        "response": experience.response_text,
                        "tokens": experience.tokens.numel() - experience.prompt_length,
                        "logprobs": experience.logprobs.tolist(),
                        "metrics": experience.metrics,
                    }
                    for experience in experiences
                ],
            }
        )
    return found


async def main(path: str, policy: str, judge: str) -> None:
    config = checked(path)
    runner_module.Allocator = allocator({"rollout": policy, "auxiliary_0": judge})
    runner = runner_module.WorkflowRunner(config, 0, [0], 0)
    explorer_input = config.buffer.explorer_input
    sampling = ("temperature", "top_p", "enable_thinking", "max_response_tokens")
    answer = {
        "mode": config.mode,
        "rollout": {name: getattr(config.explorer.rollout_model, name) for name in sampling},
        "auxiliary": {name: getattr(config.explorer.auxiliary_models[0], name) for name in sampling},
        "tasks": asdict(explorer_input.tasksets[0].rollout_args),
        "trainer_temperature": config.trainer.trainer_config.actor_rollout_ref.rollout.temperature,
        "algorithm": [config.algorithm.algorithm_type, config.algorithm.advantage_fn, config.algorithm.optimizer.lr],
        "batch": [config.buffer.batch_size, config.algorithm.repeat_times, config.buffer.train_batch_size],
        "epochs": config.buffer.total_epochs,
        "sync_style": config.synchronizer.sync_style.value,
        "eval_interval": config.explorer.eval_interval,
        "job": config.checkpoint_job_dir,
        "monitor": config.monitor.cache_dir,
        "trained": await results(runner, explorer_input.tasksets[0], 2),
        "evaluated": await results(runner, explorer_input.eval_tasksets[0], 1),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
