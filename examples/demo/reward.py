"""The verifier. The sidecar scores the policy's runs with it, and the demo measures held-out tasks with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from calculator import Reply, reply_to_user

from slipstream.rewards import Reward
from slipstream.trajectory import Run


@dataclass(frozen=True)
class Score:
    """Each from 0 to 1; of one reply 0 or 1, of several the mean.

    Attributes:
        reward: the user got the right number.
        called: the model made a call that the calculator could carry out. It is shown and not rewarded: where no
            answer of a group is right, a reward for it teaches the wrong calls among them.
    """

    reward: float
    called: float


def verify(reply: Reply, reference: str) -> Score:
    return Score(reward=float(reply.text == reference), called=float(reply.calculated))


def mean(scores: Iterable[Score]) -> Score:
    """Raises StatisticsError where there are none."""
    scores = list(scores)
    return Score(reward=fmean(score.reward for score in scores), called=fmean(score.called for score in scores))


def calculator_used_rightly(run: Run) -> Reward:
    """The sidecar's reward calculator: what the agent would have made of the policy's answer."""
    score = verify(reply_to_user(run.text, run.tool_calls), str(run.metadata["reference"]))
    return Reward(score.reward, {"called": score.called})
