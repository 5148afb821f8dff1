"""Trainers of the articles' scenarios: mathematics and tool use, by the tuner (`slipstream_client.tune`)."""

from __future__ import annotations

import json
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from slipstream.agent_training.configs import DpoConfig, RLTrainingConfig
from slipstream.agent_training.jobs import Job, rl_job
from slipstream.agent_training.scenario_rewards import MathReward, ToolUseReward
from slipstream.errors import ConfigError
from slipstream.rewards.calculator import Reward

if TYPE_CHECKING:
    from slipstream_client import DatasetConfig, TuneResult

_TRAINING = {"learning_rate": 5e-6, "batch_size": 32, "epochs": 1, "group_size": 8, "max_length": 4096}
_MODEL = {"base_model": None, "lora_rank": None}

_STEP = re.compile(r"^[ \t]*(?:(?:step|步骤)[ \t]*\d|\d+[.)][ \t])", re.IGNORECASE | re.MULTILINE)
_ANSWER = re.compile(r"(?:answer|答案)[ \t]*[:：]|\\boxed\{", re.IGNORECASE)


class _ScenarioTrainer(ABC):
    """A workflow and its reward, tuned.

    Args:
        algorithm: `ppo`, `grpo` or `multi_step_grpo` for `train`, or `dpo` for `job`.
        model_config: `base_model`, a directory, and `lora_rank`.
        training_config: `learning_rate`, `batch_size` (tasks of a step), `epochs`, `group_size` (runs of a task) and
            `max_length`.

    Raises:
        ConfigError: a key is unknown, or the model is missing; names it.
    """

    def __init__(
        self,
        algorithm: str,
        model_config: Mapping[str, Any],
        training_config: Mapping[str, Any] | None = None,
    ) -> None:
        self.algorithm = algorithm
        self._model = _known("model_config", model_config, _MODEL)
        self._training = _known("training_config", training_config or {}, _TRAINING)
        if not self._model["base_model"]:
            raise ConfigError("model_config.base_model: expected a model directory, found nothing")

    @abstractmethod
    async def workflow(self, task: dict[str, Any], model: Any) -> Any:
        """Do a task with the model."""

    @abstractmethod
    async def judge(self, task: dict[str, Any], response: Any) -> Any:
        """Judge what the workflow returned."""

    def train(self, train_data: str, eval_data: str | None = None, **options: Any) -> TuneResult:
        """Tune the model on tasks.

        Args:
            train_data, eval_data: files of tasks, or what else `DatasetConfig.path` may be.
            options: further arguments of `tune`, such as `experiment_name`.

        Raises:
            ConfigError: the algorithm learns from pairs.
            ValueError, TunerError: as of `tune`.
        """
        from slipstream_client import AlgorithmConfig, TunerModelConfig, tune

        if self.algorithm == "dpo":
            raise ConfigError(
                "algorithm: expected ppo, grpo or multi_step_grpo, found dpo, which learns from pairs: job()"
            )
        training = self._training
        with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
            if self._model["lora_rank"]:
                yaml.safe_dump({"model": {"lora_configs": [{"lora_rank": self._model["lora_rank"]}]}}, file)
                file.flush()
                options["config_path"] = file.name
            return tune(
                workflow_func=self.workflow,
                judge_func=self.judge,
                train_dataset=_dataset(train_data, training["epochs"]),
                eval_dataset=None if eval_data is None else _dataset(eval_data, 1),
                model=TunerModelConfig(
                    model_path=self._model["base_model"],
                    max_model_len=training["max_length"],
                    max_tokens=training["max_length"] // 2,
                ),
                algorithm=AlgorithmConfig(
                    algorithm_type=self.algorithm,
                    learning_rate=training["learning_rate"],
                    batch_size=training["batch_size"],
                    group_size=1 if self.algorithm == "ppo" else training["group_size"],
                ),
                **options,
            )

    def job(self, name: str = "agent_pairs") -> Job:
        """Return the job of `dpo` on the pairs of a data set: the better and the worse runs of the sidecar's groups."""
        config = RLTrainingConfig(algorithm="dpo", dpo_config=DpoConfig())
        return rl_job(config, name=name, model=self._model["base_model"])


class MathAgentTrainer(_ScenarioTrainer):
    """Trains an agent on problems of mathematics: tasks with `question` and `answer`.

    Args:
        reward_function: weights of `correctness` (3), `steps_penalty` (-0.1) and `format_bonus` (0.5).
    """

    def __init__(
        self,
        algorithm: str = "ppo",
        model_config: Mapping[str, Any] | None = None,
        reward_function: Mapping[str, float] | None = None,
        training_config: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(algorithm, model_config or {}, training_config)
        self._reward = MathReward(reward_function)

    async def workflow(self, task: dict[str, Any], model: Any) -> Any:
        """Ask the question once."""
        from slipstream_client import WorkflowOutput

        completion = await model.async_client.chat.completions.create(
            model=model.model_name, messages=[{"role": "user", "content": task["question"]}]
        )
        return WorkflowOutput(response=completion.choices[0].message.content or "")

    async def judge(self, task: dict[str, Any], response: str) -> Any:
        """Judge the answer, the steps that it writes down, and whether it says which is the answer."""
        steps, formed = len(_STEP.findall(response)), _ANSWER.search(response) is not None
        reward = await self._reward.score(response, str(task["answer"]), steps, formed)
        return _output(
            reward, {"accuracy": reward.breakdown["correctness"] or 0.0, "steps": float(steps), "format": float(formed)}
        )

    def close(self) -> None:
        """End the process that compares answers."""
        self._reward.close()


class ToolUseTrainer(_ScenarioTrainer):
    """Trains an agent to call tools: tasks with `question`, `tools`, and the right `tool_calls`. Lists may be JSON
    texts, since a table has one type for a column.

    Args:
        reward_function: weights of `correct_tool` (1), `correct_args` (0.5), `tool_success` (1), `invalid_tool` (-2).
    """

    def __init__(
        self,
        algorithm: str = "dpo",
        model_config: Mapping[str, Any] | None = None,
        reward_function: Mapping[str, float] | None = None,
        training_config: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(algorithm, model_config or {}, training_config)
        self._weights = reward_function
        ToolUseReward(reward_function)  # a wrong name is told now

    async def workflow(self, task: dict[str, Any], model: Any) -> Any:
        """Ask the question once, with the tools."""
        from slipstream_client import WorkflowOutput

        completion = await model.async_client.chat.completions.create(
            model=model.model_name,
            messages=[{"role": "user", "content": task["question"]}],
            tools=_listed(task["tools"]),
        )
        calls = completion.choices[0].message.tool_calls or []
        return WorkflowOutput(response=[call.model_dump() for call in calls])

    async def judge(self, task: dict[str, Any], response: Sequence[Mapping[str, Any]]) -> Any:
        """Judge the calls. They are not carried out: a right one is taken to succeed."""
        names = [str(tool["function"]["name"]) for tool in _listed(task["tools"])]
        reward = ToolUseReward(self._weights, names).score(_listed(task["tool_calls"]), response)
        parts = {"tool_accuracy": "correct_tool", "arg_accuracy": "correct_args"}
        return _output(reward, {name: reward.breakdown[part] or 0.0 for name, part in parts.items()})


def _output(reward: Reward, metrics: Mapping[str, float]) -> Any:
    from slipstream_client import JudgeOutput

    return JudgeOutput(reward=reward.value, metrics=dict(metrics))


def _dataset(path: str, epochs: int) -> DatasetConfig:
    from slipstream_client import DatasetConfig

    return DatasetConfig(path=str(Path(path)), total_epochs=epochs)


def _listed(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _known(name: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := given.keys() - defaults.keys():
        raise ConfigError(f"{name}: expected {', '.join(defaults)}, found {', '.join(sorted(unknown))}")
    return {**defaults, **given}
