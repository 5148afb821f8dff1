"""Runs of a workflow with a prompt that is being tuned, as gepa asks for them."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gepa.core.adapter import EvaluationBatch, GEPAAdapter
from tqdm import tqdm

from slipstream_client.tuner.errors import TunerError
from slipstream_client.tuner.functions import JudgeType, Outcome, WorkflowType, run_once

_log = logging.getLogger(__name__)

PROMPT = "system_prompt"
"""Name of the prompt in workflows, and of the text that gepa rewrites."""

_SHOWN = 4000
"""Most characters of a task and of a response that the proposer is shown: it reads three of each."""


class PromptRun(NamedTuple):
    """One run of the workflow, judged. A failed one has the worst reward of those that it was made with, or 0."""

    task: dict[str, Any]
    response: str
    reward: float
    remarks: str


@dataclass
class PromptRuns:
    """Runs the workflow with a prompt on many tasks at a time."""

    workflow: WorkflowType
    judge_func: JudgeType
    at_once: int
    wait: Callable[[Coroutine[Any, Any, list[PromptRun]]], list[PromptRun]]
    any_succeeded: bool = False

    def of(self, prompt: str, tasks: Sequence[dict[str, Any]], bar: str | None = None) -> list[PromptRun]:
        """A run of each task, in their order; progress is shown under the title `bar`.

        Raises:
            TunerError: no run has succeeded so far.
        """
        return self.wait(self._all(prompt, tasks, bar))

    async def _all(self, prompt: str, tasks: Sequence[dict[str, Any]], bar: str | None) -> list[PromptRun]:
        places = asyncio.Semaphore(self.at_once)
        with tqdm(total=len(tasks), desc=bar, disable=bar is None) as progress:

            async def outcome(task: dict[str, Any]) -> Outcome | Exception:
                async with places:
                    try:
                        own = copy.deepcopy(task)
                        return await run_once(self.workflow, self.judge_func, task=own, system_prompt=prompt)
                    except Exception as error:  # noqa: BLE001 - the user's functions raise what they like
                        return error
                    finally:
                        progress.update()

            outcomes = await asyncio.gather(*map(outcome, tasks))
        failures = [each for each in outcomes if isinstance(each, Exception)]
        if failures:
            _log.warning("%d of %d runs failed, the first with: %r", len(failures), len(tasks), failures[0])
        self.any_succeeded = self.any_succeeded or len(failures) < len(tasks)
        if not self.any_succeeded:
            raise TunerError(f"every run of the workflow failed, the first with: {failures[0]!r}") from failures[0]
        worst = min([0.0, *(each.reward for each in outcomes if isinstance(each, Outcome))])
        return [_run(task, each, worst) for task, each in zip(tasks, outcomes, strict=True)]


def _run(task: dict[str, Any], outcome: Outcome | Exception, worst: float) -> PromptRun:
    if isinstance(outcome, Exception):
        return PromptRun(task, "", worst, f"The run failed: {type(outcome).__name__}: {outcome}")
    remarks = [f"{name}: {value}" for name, value in {"Reward": outcome.reward, **outcome.metrics}.items()]
    return PromptRun(task, _text(outcome.response), outcome.reward, "\n".join(remarks))


class PromptAdapter(GEPAAdapter[dict[str, Any], PromptRun, str]):
    """Adapter between gepa and the system whose prompt it rewrites (`gepa.GEPAAdapter`)."""

    propose_new_texts = None  # gepa's own way of asking the proposer

    def __init__(self, runs: PromptRuns) -> None:
        self._runs = runs

    def evaluate(
        self, batch: list[dict[str, Any]], candidate: dict[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[PromptRun, str]:
        runs = self._runs.of(candidate[PROMPT], batch)
        return EvaluationBatch(
            outputs=[run.response for run in runs],
            scores=[run.reward for run in runs],
            trajectories=runs if capture_traces else None,
        )

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: EvaluationBatch[PromptRun, str], components_to_update: list[str]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        examples = [
            {"Task": shown(run.task), "Response": run.response[:_SHOWN], "Feedback": run.remarks}
            for run in eval_batch.trajectories or ()
        ]
        return dict.fromkeys(components_to_update, examples)


def _text(response: Any) -> str:
    """A response as the proposer reads it: an AgentScope message by its text."""
    text = getattr(response, "get_text_content", None)
    return str(text() if callable(text) else response)


def shown(task: Mapping[str, Any]) -> str:
    """A task as it is shown, cut where it is very long."""
    return json.dumps(task, ensure_ascii=False, default=str)[:_SHOWN]
