"""Choice among several models by a workflow's tasks: AgentScope's `select_model`.

What a run took is gathered from the models' answers. OpenTelemetry, which the original sets up anew for the whole
process, is left alone.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from slipstream_client.tuner.candidates import CallableCandidate, ServedCandidate
from slipstream_client.tuner.config import TunerModelConfig
from slipstream_client.tuner.dataset import DatasetConfig
from slipstream_client.tuner.errors import TunerError
from slipstream_client.tuner.functions import (
    JudgeOutput,
    JudgeType,
    WorkflowOutput,
    WorkflowType,
    call,
    check_parameters,
)
from slipstream_client.tuner.gateway import Gateway

_log = logging.getLogger(__name__)
_TIMEOUT = 600.0  # seconds of one answer; the openai SDK's own

Judged = JudgeOutput | Exception


async def select_model(
    *,
    workflow_func: WorkflowType,
    judge_func: JudgeType,
    train_dataset: DatasetConfig,
    candidate_models: Sequence[Any],
    max_threads: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Any, dict[str, float]]:
    """Run the workflow with each model on each task, and say which is judged best.

    Models are compared by their mean reward over the tasks that all of them finished; one that finished none is out.

    Args:
        workflow_func: `workflow(task, model) -> WorkflowOutput`, async or plain.
        judge_func: `judge(task, response) -> JudgeOutput`, more is better. Its `response` is a mapping of the
            workflow's `response` and of `metrics`: the workflow's own, `execution_time` in seconds, and, where the
            model's answers tell, `input_tokens`, `output_tokens`, `total_tokens`, and these three as `usage`. See
            `avg_time_judge` and `avg_token_consumption_judge`.
        train_dataset: the tasks; the first `total_steps` of them, where that is set.
        candidate_models: at least two, each a `TunerModelConfig` with `base_url`, or a model object of AgentScope's.
            The workflow gets a `TunerModel` for the former, and the latter as it is.
        max_threads: runs at the same time, of one model after the other.
        clock: seconds, for `execution_time`.

    Returns:
        The best of `candidate_models`, and the means of its judge's metrics, by their names with `_avg` behind.

    Raises:
        ValueError: an argument is wrong; it is named.
        TunerError: no model finished a task, or there is no task that each of them finished.
    """
    check_parameters(workflow_func, "workflow function", ("task", "model"))
    _check_judge(judge_func)
    if len(candidate_models) < 2:
        raise ValueError(f"candidate_models: expected at least two, found {len(candidate_models)}")
    if max_threads < 1:
        raise ValueError(f"max_threads: expected at least 1, found {max_threads}")
    with Gateway(_TIMEOUT) as gateway:
        candidates = [_candidate(model, index, gateway) for index, model in enumerate(candidate_models)]
        tasks = [dict(task) for task in train_dataset.load()][: train_dataset.total_steps]
        judged = []
        for candidate in candidates:
            places = asyncio.Semaphore(max_threads)
            runs = (_judged(workflow_func, judge_func, candidate, task, places, clock) for task in tasks)
            judged.append(await asyncio.gather(*runs))
            _warn(candidate.name, judged[-1])
    compared = _compared(judged)
    rewards = {index: _mean([output.reward for output in outputs]) for index, outputs in compared.items()}
    for index, reward in rewards.items():
        _log.info("%s: mean reward %.4f, %s", candidates[index].name, reward, _metrics(compared[index]))
    best = max(rewards, key=lambda index: rewards[index])
    return candidate_models[best], _metrics(compared[best])


def _candidate(model: Any, index: int, gateway: Gateway) -> ServedCandidate | CallableCandidate:
    if isinstance(model, TunerModelConfig):
        if model.base_url is None:
            raise ValueError(f"candidate_models[{index}].base_url: missing; where is {model.model_path} served?")
        return ServedCandidate(model, gateway, _TIMEOUT)
    if not callable(model) or not hasattr(model, "model_name"):
        raise ValueError(
            f"candidate_models[{index}]: expected a TunerModelConfig or a model of AgentScope's, found {model!r}"
        )
    return CallableCandidate(model)


def _check_judge(judge_func: JudgeType) -> None:
    """The original's judges may call their first parameter `_task`."""
    try:
        check_parameters(judge_func, "judge function", ("_task", "response"))
    except ValueError:
        check_parameters(judge_func, "judge function", ("task", "response"))


async def _judged(
    workflow_func: WorkflowType,
    judge_func: JudgeType,
    candidate: ServedCandidate | CallableCandidate,
    task: dict[str, Any],
    places: asyncio.Semaphore,
    clock: Callable[[], float],
) -> Judged:
    """One run, and what the judge says of it. The user's functions raise what they like."""
    async with places:
        try:
            async with candidate.bound() as (model, usage):
                begun = clock()
                output = await call(workflow_func, task=copy.deepcopy(task), model=model)
                seconds = clock() - begun
                if not isinstance(output, WorkflowOutput):
                    raise TypeError(f"the workflow function returned {type(output).__name__}, expected WorkflowOutput")
                metrics: dict[str, Any] = {**(output.metrics or {}), "execution_time": seconds}
                if (took := usage()) is not None:
                    tokens = {**asdict(took), "total_tokens": took.total_tokens}
                    metrics |= {**{name: float(number) for name, number in tokens.items()}, "usage": tokens}
            response = {"response": output.response, "metrics": metrics}
            judged = await call(judge_func, task=task, _task=task, response=response)
            if not isinstance(judged, JudgeOutput):
                raise TypeError(f"the judge function returned {type(judged).__name__}, expected JudgeOutput")
        except Exception as error:  # noqa: BLE001
            return error
        return judged


def _warn(name: str, judged: Sequence[Judged]) -> None:
    errors = [each for each in judged if isinstance(each, Exception)]
    if errors:
        _log.warning("%s: %d of %d runs failed, the first with: %r", name, len(errors), len(judged), errors[0])


def _compared(judged: Sequence[Sequence[Judged]]) -> Mapping[int, Sequence[JudgeOutput]]:
    """Return, for each model that finished any task, by its number, the verdicts on the tasks that all of these
    finished."""
    finished = [{task for task, each in enumerate(runs) if isinstance(each, JudgeOutput)} for runs in judged]
    left = [index for index, tasks in enumerate(finished) if tasks]
    if not left:
        first = judged[0][0]
        raise TunerError(f"no model finished a task; the first failed with: {first!r}")
    common = sorted(set.intersection(*(finished[index] for index in left)))
    if not common:
        raise TunerError("the models cannot be compared: there is no task that each of them finished")
    return {index: [each for task in common if isinstance(each := judged[index][task], JudgeOutput)] for index in left}


def _metrics(outputs: Sequence[JudgeOutput]) -> dict[str, float]:
    names = dict.fromkeys(name for output in outputs for name in output.metrics or ())
    return {
        f"{name}_avg": _mean([output.metrics[name] for output in outputs if output.metrics and name in output.metrics])
        for name in names
    }


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)
