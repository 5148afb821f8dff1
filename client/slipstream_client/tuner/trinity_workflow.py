"""The workflow class that Trinity-RFT runs for `tune()`: its YAML names it, and only Trinity's workers import it.

A run goes as in `tune()`: the workflow's model calls go through a gateway, here in the worker, which sees all of them
whatever they are made with. What Trinity's own client would record of its own calls is read off the answers there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

from trinity.common.experience import Experience
from trinity.common.models.experience_extraction import HistoryRecordingStream, convert_api_output_to_experience
from trinity.common.models.model import ModelWrapper
from trinity.common.workflows.workflow import Task, Workflow

from slipstream_client.tuner.calls import Calls, RunFailed
from slipstream_client.tuner.config import TunerModelConfig
from slipstream_client.tuner.endpoint import served
from slipstream_client.tuner.errors import TunerError
from slipstream_client.tuner.function_names import function_named
from slipstream_client.tuner.gateway import Gateway, Upstream
from slipstream_client.tuner.rollouts import Rollouts

_TIMEOUT = 3600.0
"""Seconds of one answer. Of a whole run `explorer.max_timeout` is the limit, which Trinity keeps to itself."""


class TunedWorkflow(Workflow):  # type: ignore[misc] # Trinity is not where types are checked
    """One run of the user's workflow on one task, and its experiences with the run's one reward.

    `workflow_args` has the names of `workflow_func` and `judge_func`, the folders `python_path` of their modules, and
    in `auxiliary_models` those that Trinity does not run itself.
    """

    is_async = True

    def __init__(self, *, task: Task, model: ModelWrapper, auxiliary_models: list[ModelWrapper] | None = None) -> None:
        super().__init__(task=task, model=model)
        arguments = task.workflow_args
        folders = arguments.get("python_path") or ()
        judge = arguments.get("judge_func")
        elsewhere = {
            name: TunerModelConfig(**given) for name, given in (arguments.get("auxiliary_models") or {}).items()
        }
        self._rollouts = Rollouts(
            workflow=function_named(arguments["workflow_func"], folders),
            judge=function_named(judge, folders) if judge else None,
            gateway=_gateway(),
            policy=_policy(model, task),
            auxiliary={
                **{str(wrapper.config.name): _auxiliary(wrapper) for wrapper in auxiliary_models or ()},
                **{name: served(config) for name, config in elsewhere.items()},
            },
            concurrency=1,
            timeout=_TIMEOUT,
            log=self.logger,
        )

    async def run_async(self) -> list[Experience]:
        """Run it.

        Raises:
            RunFailed: a call failed, or there was none; Trinity drops the run.
            Exception: what the workflow or the judge raised; likewise.
        """
        calls = Calls(keep=True)
        try:
            outcome = await self._rollouts.outcome(dict(self.task.raw_task), calls)
        finally:
            with suppress(RunFailed):
                calls.close()  # what still asks in its name is refused
        calls.close()
        experiences = []
        for step, answer in enumerate(calls.answers):
            for experience in _experiences(answer):
                experience.eid.step = step
                experience.reward = outcome.reward
                experiences.append(experience)
        # Of these Trinity makes the run's metrics, an evaluation's too, where it looks at nothing else.
        experiences[-1].metrics = {"reward": outcome.reward, **outcome.metrics}
        return experiences


@dataclass(frozen=True)
class _Recorded(Upstream):
    """Answers come with the tokens that are trained on."""

    def request(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {**super().request(given), "logprobs": True, "return_token_ids": True}


@cache
def _gateway() -> Gateway:
    """One for all runs of this worker, for as long as it lives."""
    return Gateway(_TIMEOUT).__enter__()


def _policy(model: ModelWrapper, task: Task) -> Upstream:
    arguments = task.rollout_args
    defaults = {"temperature": arguments.temperature, "top_p": arguments.top_p, "max_tokens": arguments.max_tokens}
    if arguments.top_k > 0:
        defaults["top_k"] = arguments.top_k
    return _Recorded(*_address(model), {**defaults, **_thinking(model)}, _headers(model))


def _auxiliary(model: ModelWrapper) -> Upstream:
    config = model.config
    defaults = {"temperature": config.temperature, "top_p": config.top_p, "max_tokens": config.max_response_tokens}
    return Upstream(*_address(model), {**defaults, **_thinking(model)}, _headers(model))


def _address(model: ModelWrapper) -> tuple[str, str]:
    if model.api_address is None:
        raise TunerError(f"{model.config.model_path} is not served by HTTP: its enable_openai_api must be true")
    return f"{model.api_address}/v1", str(model.config.model_path)


def _thinking(model: ModelWrapper) -> dict[str, Any]:
    thinking = model.config.enable_thinking
    return {} if thinking is None else {"chat_template_kwargs": {"enable_thinking": thinking}}


def _headers(model: ModelWrapper) -> dict[str, str]:
    return {"authorization": f"Bearer {model.api_key}"}


def _experiences(answer: list[dict[str, Any]]) -> list[Experience]:
    """Return the experiences that Trinity makes of an answer, whole or in events; it reads them as objects."""
    said = [json.loads(json.dumps(part), object_hook=lambda fields: SimpleNamespace(**fields)) for part in answer]
    made: list[Experience] = []
    if answer[0].get("object") == "chat.completion.chunk":
        list(HistoryRecordingStream(iter(said), made))  # it records at the end
    else:
        made = convert_api_output_to_experience(said[0])
    if not made:
        raise TunerError("the engine's answer has no tokens to train on")
    return made
