"""Rewards of answers for data sets, by the calculators that judge an answer without taking another one for the truth.

Production's answers have no reward in the store. Those of the policy have one, which may compare with production
(`agreement`); a pair of production's answer and a run's is made by calculators that judge both alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry

from slipstream.errors import ScoringError
from slipstream.isolation import Isolation
from slipstream.metrics import Metrics
from slipstream.rewards import RewardModel, RewardsSettings
from slipstream.rewards.calculator import NoBasis
from slipstream.rewards.calculators.given import PostedFeedback
from slipstream.rollouts.guardrails import ByLastAnswer, comparable, lacks_references
from slipstream.store.training_answers import OfTask
from slipstream.tenants import name_of
from slipstream.trajectory import Call, PolicyCall, Run, Task


@dataclass(frozen=True, slots=True)
class Score:
    """A reward, and its components."""

    reward: float
    breakdown: Mapping[str, float | None]


class AnswerScorer:
    """Scores single answers.

    Args:
        rewards: the sidecar's; those calculators are left out that need a user's feedback, that take production's
            answer for the truth, or that need a reference that the task has not. A reference that is an answer is that
            of a task's last one: for one before, the calculators that compare with it are left out, and the others are
            asked.

    Attributes:
        failed: answers that a calculator failed on.
    """

    def __init__(self, rewards: RewardsSettings, isolation: Isolation | None = None) -> None:
        metrics = Metrics(CollectorRegistry())  # of this export alone
        self.failed = 0
        self._by_references = _without_feedback(comparable(rewards, references=True))
        self._alone = _without_feedback(comparable(rewards, references=False))
        self._models = {
            (references, between): RewardModel(asked, metrics, isolation) if asked.calculators else None
            for references, chosen in ((True, self._by_references), (False, self._alone))
            for between, asked in ((False, chosen), (True, _without_last_answers(chosen)))
        }
        asked_for = [spec.parameters for spec in self._by_references.calculators]
        self._needed = {each.key for each in asked_for if isinstance(each, ByLastAnswer) and not each.optional}

    @property
    def scores(self) -> bool:
        """Return whether there is a calculator that can judge an answer alone."""
        return any(model is not None for model in self._models.values())

    @property
    def components(self) -> tuple[str, ...]:
        """Return the names of the calculators that are asked if a task has what they need."""
        return tuple(spec.component for spec in self._by_references.calculators)

    async def score(
        self, task: OfTask, request: Mapping[str, Any], answer: Mapping[str, Any], *, position: int, last: bool
    ) -> Score | None:
        """The score of an answer; None if no calculator has a basis, or one of them failed.

        Args:
            position: of the call that it answers, within its task.
            last: it answers the last call of its task, which is the one that a reference answer describes.
        """
        # one that is not optional, and whose reference is missing, leaves all answers of the task without a score
        between = not last and all(task.metadata.get(key) not in (None, "", []) for key in self._needed)
        model = self._models[not lacks_references(self._by_references, task.metadata), between]
        if model is None:
            return None
        hidden = Call(name_of(task.ref), position, request, {})
        # calculators of reference answers look for a later call
        later = () if last else (Call(name_of(task.ref), position + 1, {}, {}),)
        seen = Task(
            name_of(task.ref),
            name_of(task.session_ref),
            (hidden, *later),
            frozenset(task.labels),
            metadata=task.metadata,
            tenant=task.tenant,
        )
        answered = PolicyCall(request, answer, str(answer.get("id") or ""))
        try:
            reward = await model.score(Run(seen, name_of(task.ref), 0, (answered,), hidden))
        except NoBasis:
            return None
        except ScoringError:
            self.failed += 1
            return None
        return Score(reward.value, reward.breakdown)

    async def aclose(self) -> None:
        """Close the calculators."""
        for model in self._models.values():
            if model is not None:
                await model.aclose()


def _without_feedback(rewards: RewardsSettings) -> RewardsSettings:
    kept = tuple(spec for spec in rewards.calculators if not isinstance(spec.parameters, PostedFeedback))
    return rewards.model_copy(update={"calculators": kept})


def _without_last_answers(rewards: RewardsSettings) -> RewardsSettings:
    kept = tuple(spec for spec in rewards.calculators if not isinstance(spec.parameters, ByLastAnswer))
    return rewards.model_copy(update={"calculators": kept})
