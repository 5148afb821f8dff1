"""Rewards of answers to cases, by the configured calculators that can compare a version with production."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import structlog

from slipstream.errors import ScoringError
from slipstream.evaluation.cases import AskedCase
from slipstream.isolation import Isolation
from slipstream.metrics import Metrics
from slipstream.rewards import RewardModel, RewardsSettings
from slipstream.rewards.calculator import NoBasis
from slipstream.rewards.calculators.given import PostedFeedback
from slipstream.rollouts.guardrails import ByLastAnswer, comparable, lacks_references
from slipstream.store.evaluations import Answer, Outcome
from slipstream.trajectory import Call, PolicyCall, Run, Task

_log = structlog.get_logger(__name__)


def calculators_for(rewards: RewardsSettings, cases: Sequence[AskedCase]) -> RewardsSettings:
    """The section `rewards` with the calculators that can judge answers to these cases.

    Left out are those that take production's answer for the truth, unless all cases have the references, and
    `feedback`, because no user sees these answers.
    """
    with_references = comparable(rewards, references=True)
    lacking = any(lacks_references(with_references, case.metadata) for case in cases)
    chosen = comparable(rewards, references=False) if lacking else with_references
    kept = tuple(spec for spec in chosen.calculators if not isinstance(spec.parameters, PostedFeedback))
    return chosen.model_copy(update={"calculators": kept})


def of_last_answers(rewards: RewardsSettings) -> bool:
    """Return whether a task has to be scored by its last answer: a calculator that may not be left out compares it with
    a reference, which describes no other answer."""
    parameters = (spec.parameters for spec in rewards.calculators)
    return any(isinstance(each, ByLastAnswer) and not each.optional for each in parameters)


def digest_of(rewards: RewardsSettings) -> str:
    """Name the calculators: values are compared only if they were given by the same ones."""
    parts = [f"{spec.name} {spec.component} {spec.weight:g} {spec.parameters!r}" for spec in rewards.calculators]
    return hashlib.sha256("\n".join([*parts, repr(rewards.clip)]).encode()).hexdigest()[:16]


class CaseScorer:
    """Scores answers by one choice of calculators."""

    def __init__(self, rewards: RewardsSettings, metrics: Metrics, isolation: Isolation) -> None:
        self.rewards = rewards
        self._model = RewardModel(rewards, metrics, isolation)

    @property
    def judges(self) -> int:
        """Return the number of judges that an answer is shown."""
        return self.rewards.judges

    async def aclose(self) -> None:
        """Close the calculators."""
        await self._model.aclose()

    async def score(self, run: Run) -> Answer:
        """The value of an answer."""
        latency = run.latency
        try:
            reward = await self._model.score(run)
        except NoBasis:
            return Answer(Outcome.NO_BASIS, None, {}, latency)
        except ScoringError as error:  # its reason may quote the answer
            _log.debug("evaluation_scoring_failed", group_id=run.group_id, reason=str(error))
            return Answer(Outcome.UNSCORED, self.lowest, {}, latency)
        return Answer(Outcome.SCORED, reward.value, reward.breakdown, latency)

    @property
    def lowest(self) -> float:
        """Return the least reward that there is."""
        return float(self.rewards.clip[0])


def run_of(evaluation: int, case: AskedCase, task: Task | None, answered: PolicyCall) -> Run:
    """One answer to a case, as a calculator sees it: production's answer is hidden from it.

    Args:
        task: of a held-out call, as `from_call` has it; None for a case of a file.
    """
    name = f"evaluation-{evaluation}.{case.key[:16]}"
    hidden = Call(task_id=name, position=0, request=case.request, answer={})
    if task is None:
        task = Task(name, case.session.removeprefix("\0"), (hidden,), metadata=case.metadata)
    else:
        hidden = replace(task.calls[0], answer={}, variant=None)
        task = replace(task, calls=tuple(replace(each, answer={}, variant=None) for each in task.calls))
    return Run(task=task, group_id=name, run_id=0, calls=(answered,), production=hidden)


def from_call(task: Task, position: int) -> Task | None:
    """A held-out call's task from this call on; None if it has no such call.

    Of the calls after it only their places are left: a reference describes the task's last answer, and what they ask
    quotes production's.
    """
    asked = next((call for call in task.calls if call.position == position), None)
    if asked is None:
        return None
    later = (replace(call, request={}, answer={}) for call in task.calls if call.position > position)
    return replace(task, calls=(asked, *later))


def message_call(request: Any, answer: Any, latency: float, version: int | None = None) -> PolicyCall:
    """A chat completion as the call of a run."""
    return PolicyCall(request, answer, str(answer.get("id") or ""), latency, version)
