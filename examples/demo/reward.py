"""The verifier. The sidecar scores the policy's runs with it, and the demo measures held-out tasks with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import fmean

from calculator import Reply, reply_to_user

from slipstream.rewards import Reward
from slipstream.trajectory import Run

_CALLED, _RIGHT = 0.4, 0.6  # weights: a right answer is the aim, and calling the tool the way to it


@dataclass(frozen=True)
class Score:
    """Each from 0 to 1; of one reply 0 or 1, of several the mean.

    Attributes:
        called: the model made a call that the calculator could carry out.
        right: the user got the right number.
    """

    called: float
    right: float

    @property
    def reward(self) -> float:
        return _CALLED * self.called + _RIGHT * self.right


def verify(reply: Reply, reference: str) -> Score:
    return Score(called=float(reply.calculated), right=float(reply.text == reference))


def mean(scores: Iterable[Score]) -> Score:
    """Raises StatisticsError where there are none."""
    scores = list(scores)
    return Score(called=fmean(score.called for score in scores), right=fmean(score.right for score in scores))


def calculator_used_rightly(run: Run) -> Reward:
    """The sidecar's reward calculator: what the agent would have made of the policy's answer."""
    score = verify(reply_to_user(run.text, run.tool_calls), str(run.metadata["reference"]))
    return Reward(score.reward, asdict(score))
