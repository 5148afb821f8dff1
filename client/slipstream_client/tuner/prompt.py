"""The system prompt of a workflow, rewritten until its runs are judged better: AgentScope's `tune_prompt`.

The search is GEPA (Agrawal et al., "GEPA: Reflective Prompt Evolution Can Outperform Reinforcement Learning", 2025,
arXiv:2507.19457, in the library gepa): a language model reads runs with their rewards and writes a better prompt,
which is kept if it does better on the same tasks; the best on all tasks wins.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Literal

from gepa.api import optimize
from gepa.core.result import GEPAResult
from pydantic import BaseModel, ConfigDict, Field

from slipstream_client.tuner.dataset import DatasetConfig
from slipstream_client.tuner.functions import JudgeType, WorkflowType, check_parameters
from slipstream_client.tuner.prompt_runs import PROMPT, PromptAdapter, PromptRun, PromptRuns, shown
from slipstream_client.tuner.proposer import Proposer

_log = logging.getLogger(__name__)

_BUDGETS = {"light": (6, 100), "medium": (12, 300), "heavy": (18, 1000)}
"""By level: how many prompts are proposed, and most tasks that prompts are compared on. As in dspy's MIPROv2."""


class PromptTuneConfig(BaseModel):
    """Settings of prompt tuning: AgentScope's fields, and `seed`, `lm_base_url` and `lm_api_key` beside."""

    model_config = ConfigDict(extra="forbid")

    lm_model_name: str = Field(default="dashscope/qwen-plus", min_length=1, description="The model that proposes.")
    lm_base_url: str | None = Field(
        default=None, min_length=1, description="Where it is served; None: lm_model_name is openai/... or dashscope/..."
    )
    lm_api_key: str | None = Field(default=None, min_length=1, repr=False, description="None: the provider's variable.")
    optimization_level: Literal["light", "medium", "heavy"] = Field(
        default="light", description="How long it searches."
    )
    eval_display_progress: bool = Field(default=True, description="Whether evaluations have a progress bar.")
    eval_display_table: int = Field(default=5, ge=0, description="How many runs of an evaluation are logged.")
    eval_num_threads: int = Field(default=16, ge=1, description="Runs at the same time.")
    compare_performance: bool = Field(default=True, description="Whether the first prompt is evaluated too.")
    seed: int = Field(default=0, description="Of the search.")


def tune_prompt(
    *,
    workflow: WorkflowType,
    init_system_prompt: str,
    judge_func: JudgeType,
    train_dataset: DatasetConfig,
    eval_dataset: DatasetConfig | None = None,
    config: PromptTuneConfig | None = None,
) -> tuple[str, dict[str, float]]:
    """Search for a better system prompt.

    Args:
        workflow: `workflow(task, system_prompt) -> WorkflowOutput`, async or plain; its own reward is not looked at.
        init_system_prompt: where the search starts; what is returned where nothing better is found.
        judge_func: `judge(task, response) -> JudgeOutput`, async or plain; more is better.
        train_dataset: the tasks that prompts are improved and compared on.
        eval_dataset: other tasks, on which the best prompt is evaluated in the end.

    Returns:
        The prompt, and with `eval_dataset` its mean reward there, `valset_score`; with `compare_performance` too the
        first prompt's, `valset_baseline`, and what was gained, `valset_improvement`, in percent of that (infinite
        over 0).

    Raises:
        ValueError: an argument is wrong; the message names it.
        TunerError: each run of the first prompt failed, or the proposer never answered.
    """
    config = config or PromptTuneConfig()
    check_parameters(workflow, "workflow function", ("task", PROMPT))
    check_parameters(judge_func, "judge function", ("task", "response"))
    proposer = Proposer(config.lm_model_name, config.lm_base_url, config.lm_api_key)
    tasks = [dict(task) for task in train_dataset.load()]
    evaluation = [dict(task) for task in eval_dataset.load()] if eval_dataset is not None else []
    with closing(proposer), _loop() as wait:
        runs = PromptRuns(workflow, judge_func, config.eval_num_threads, wait)
        prompt = _search(init_system_prompt, tasks, runs, proposer, config)
        _log.info("the best prompt:\n%s", prompt)
        if not evaluation:
            return prompt, {}
        score = _mean(runs, prompt, evaluation, "evaluation", config)
        if not config.compare_performance:
            return prompt, {"valset_score": score}
        baseline = _mean(runs, init_system_prompt, evaluation, "baseline", config)
    return prompt, {
        "valset_improvement": _percent(baseline, score), "valset_baseline": baseline, "valset_score": score
    }  # fmt: skip


def _search(
    first: str, tasks: Sequence[dict[str, Any]], runs: PromptRuns, proposer: Proposer, config: PromptTuneConfig
) -> str:
    proposals, most = _BUDGETS[config.optimization_level]
    compared = random.Random(config.seed).sample(tasks, min(most, len(tasks)))  # noqa: S311 - no secret
    result: GEPAResult[str, Any] = optimize(
        seed_candidate={PROMPT: first},
        trainset=list(tasks),
        valset=compared,
        adapter=PromptAdapter(runs),
        reflection_lm=proposer,
        skip_perfect_score=False,  # a judge's best reward is not known
        stop_callbacks=lambda state: state.i + 1 >= proposals,
        logger=_Logger(),
        seed=config.seed,
    )
    proposer.must_have_answered()
    return str(result.candidates[result.best_idx][PROMPT])


def _mean(runs: PromptRuns, prompt: str, tasks: list[dict[str, Any]], what: str, config: PromptTuneConfig) -> float:
    done = runs.of(prompt, tasks, what if config.eval_display_progress else None)
    for run in done[: config.eval_display_table]:
        _log.info("%s: reward %.4f, task %s, response %s", what, run.reward, shown(run.task), run.response)
    mean = sum(run.reward for run in done) / len(done)
    _log.info("%s: mean reward %.4f of %d tasks", what, mean, len(done))
    return mean


def _percent(before: float, after: float) -> float:
    if after == before:
        return 0.0
    return 100 * (after - before) / abs(before) if before else math.copysign(math.inf, after)


class _Logger:
    """gepa's log, which it prints where it is given none."""

    def log(self, message: str) -> None:
        _log.debug("%s", message)


@contextmanager
def _loop() -> Iterator[Callable[[Coroutine[Any, Any, list[PromptRun]]], list[PromptRun]]]:
    """One event loop for all runs, in a thread: async clients outlive a run, and a notebook has a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="tune_prompt", daemon=True)
    thread.start()
    try:
        yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
