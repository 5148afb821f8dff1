"""Stages of training in one file, one after the other: warm-up, supervised training, learning from rewards, evaluation,
and the way to users.

    profile: development
    data: agent_sft
    warmup: {enabled: true, samples: 1000, focus: [tool_format_understanding]}
    sft: {num_epochs: 3}
    rl: {algorithm: dpo}
    evaluate: {metrics: [tool_accuracy, plan_success]}
    promote: {version: 4}

A stage that is done is noted, so that a run that was interrupted goes on with the next one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from slipstream.agent_training.configs import AgentSFTConfig, RLTrainingConfig, profile
from slipstream.agent_training.jobs import Job, rl_job, sft_job, slipstream
from slipstream.config.problems import describe
from slipstream.config.yaml_text import read_yaml
from slipstream.errors import ConfigError
from slipstream.evaluation.metrics import metric_named
from slipstream.trinity.checkpoint_files import replace_text

_DONE = "stages.json"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Warmup(_Part):
    """A short supervised training before the others, on rows that show the form of tool calls and plans.

    Attributes:
        data_source: name of the data set.
        samples: rows that are trained on, in whole steps; an epoch at most. Their order is drawn.
        focus: labels of tasks; empty for all.
    """

    enabled: bool = False
    data_source: str = "agent_sft"
    samples: Annotated[int, Field(ge=1)] = 1000
    focus: tuple[str, ...] = ()


class Evaluate(_Part):
    """An evaluation, as `slipstream evaluate` makes it.

    Attributes:
        models: that are compared.
        held_out: the folder of a data set, or `live` for sessions that no version was trained on.
        metrics: by their names or the articles' names; empty for all.
    """

    models: Annotated[tuple[str, ...], Field(min_length=1)] = ("policy", "production")
    held_out: Annotated[str, Field(min_length=1)] = "live"
    metrics: tuple[str, ...] = ()

    @field_validator("metrics")
    @classmethod
    def _are_known(cls, metrics: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(metric_named(name).value for name in metrics)


class Promote(_Part):
    """A rollout of a version, which the sidecar promotes or takes back by what is proven.

    Attributes:
        version: its number.
        replace: a version that is live goes back to production first.
    """

    version: Annotated[int, Field(ge=1)]
    replace: bool = False


class Stages(_Part):
    """The file.

    Attributes:
        profile: whose fields `sft` is laid over.
        data: name of the data set of `sft`.
        datasets: the folder of data sets.
        cpt: continued pre-training, which there is none of here.
        rl: `dpo` or `rft`; `ppo` and `grpo` go on for as long as there is traffic, and end no stage.
    """

    profile: Literal["development", "production"] | None = None
    data: Annotated[str, Field(min_length=1)] = "agent_sft"
    datasets: Path = Path("datasets")
    warmup: Warmup = Warmup()
    sft: Mapping[str, Any] | None = None
    cpt: Any = None
    rl: RLTrainingConfig | None = None
    evaluate: Evaluate | None = None
    promote: Promote | None = None

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.cpt is not None:
            raise ValueError(
                "sft and no cpt: there is no training on plain text here. Every row is a chat with an answer, since "
                "the store holds chats; a text that is to be known can be taught as an answer, by sft"
            )
        if self.rl is not None and self.rl.algorithm in ("ppo", "grpo"):
            raise ValueError(
                f"rl.algorithm dpo or rft, found {self.rl.algorithm}, which learns from the sidecar's traffic and ends "
                "no stage: start its Trainer with `slipstream up` or `slipstream trainer`"
            )
        return self

    @property
    def of_sft(self) -> AgentSFTConfig:
        """The configuration of supervised training, with the profile's fields.

        Raises:
            ConfigError: a field is wrong.
        """
        fields = {"train_data": f"{self.data}:train", "dev_data": f"{self.data}:dev", **(self.sft or {})}
        try:
            return AgentSFTConfig(**fields) if self.profile is None else profile(self.profile, **fields)
        except ValidationError as error:
            raise ConfigError(*(f"sft.{line}" for line in describe(error, AgentSFTConfig, {}))) from error


@dataclass(frozen=True)
class Stage:
    """A stage that is ready to run.

    Attributes:
        job: of a stage that trains.
        command: of `slipstream`, for one that does not.
    """

    name: str
    job: Job | None = None
    command: tuple[str, ...] = ()


def load_stages(path: Path) -> Stages:
    """Read the file.

    Raises:
        ConfigError: it cannot be read, or a key is wrong; names the file and the key.
    """
    try:
        stages = Stages.model_validate(read_yaml(path))
        _ = stages.of_sft
    except ValidationError as error:
        raise ConfigError(*(f"{path}: {line}" for line in describe(error, Stages, {}))) from error
    except ConfigError as error:
        raise ConfigError(*(f"{path}: {problem}" for problem in error.problems)) from error
    return stages


def planned(stages: Stages, directory: Path) -> Iterator[Stage]:
    """Yield the stages in their order. The first that trains begins at the base model, each other one at the version
    that the one before it made.

    Args:
        directory: for the report of the evaluation.

    Raises:
        ConfigError: a key cannot be said here; names it.
    """
    start = "base"
    for name, job in _trainings(stages):
        assert job.data is not None
        train = job.data.train.model_copy(update={"start": start})
        yield Stage(name, Job(job.data.model_copy(update={"train": train}), job.overlay, job.notes))
        start = "latest"
    if stages.evaluate is not None:
        models = [part for model in stages.evaluate.models for part in ("--model", model)]
        metrics = ["--metrics", ",".join(stages.evaluate.metrics)] if stages.evaluate.metrics else []
        about = ("--held-out", stages.evaluate.held_out, *metrics, "--report", str(directory / "report"))
        yield Stage("evaluate", command=("evaluate", *models, *about))
    if stages.promote is not None:
        replace = ("--replace",) if stages.promote.replace else ()
        yield Stage("promote", command=("rollout", "start", str(stages.promote.version), *replace))


def run_stages(
    stages: Stages, directory: Path, say: Callable[[str], None] = print, run: Callable[..., None] = slipstream
) -> None:
    """Run the stages that are not done yet.

    Args:
        directory: of their files, and of the note of what is done; another one begins anew.
        say: told what begins, and the notes of each job.
        run: runs a command of `slipstream`.

    Raises:
        SlipstreamError: a stage failed. Those before it are done.
    """
    directory.mkdir(parents=True, exist_ok=True)
    noted = directory / _DONE
    done: list[str] = json.loads(noted.read_text(encoding="utf-8")) if noted.exists() else []
    for stage in planned(stages, directory):
        if stage.name in done:
            continue
        say(f"{stage.name}: begins")
        if stage.job is not None:
            for note in stage.job.notes:
                say(f"{stage.name}: {note}")
            for command in stage.job.commands(stage.job.write(directory / stage.name), stages.datasets):
                run(*command)
        else:
            run(*stage.command)
        done.append(stage.name)
        replace_text(noted, json.dumps(done))


def _trainings(stages: Stages) -> Iterator[tuple[str, Job]]:
    config = stages.of_sft
    if stages.warmup.enabled:
        yield "warmup", _warmup(stages.warmup, config)
    if stages.sft is not None:
        yield "sft", sft_job(config)
    if stages.rl is not None:
        job = rl_job(stages.rl, name=f"{stages.data}_pairs" if stages.rl.algorithm == "dpo" else stages.data)
        shared = sft_job(config).overlay["model"]  # one model, with the same adapters, through all stages
        yield "rl", Job(job.data, {**job.overlay, "model": shared}, job.notes)


def _warmup(warmup: Warmup, config: AgentSFTConfig) -> Job:
    job = sft_job(
        config.model_copy(
            update={
                "train_data": f"{warmup.data_source}:train",
                "dev_data": f"{warmup.data_source}:dev",
                "num_epochs": 1,
                "task_weights": dict.fromkeys(warmup.focus, 1.0),
                "use_coreset_selection": False,
                "use_online_continual": False,
            }
        )
    )
    assert job.data is not None
    steps = math.ceil(warmup.samples / job.overlay["buffer"]["train_batch_size"])
    overlay = {**job.overlay, "trainer": {**job.overlay["trainer"], "total_steps": steps}}
    if not warmup.focus:
        return Job(job.data, overlay, job.notes)
    source = job.data.dataset.sources[0]
    assert source.policy is not None
    focused = source.model_copy(update={"policy": source.policy.model_copy(update={"labels": warmup.focus})})
    name = f"{warmup.data_source}_warmup"  # other rows than those of its name
    dataset = job.data.dataset.model_copy(update={"name": name, "sources": (focused,)})
    return Job(job.data.model_copy(update={"dataset": dataset}), overlay, job.notes)
