"""Content of a delivery: experiences with their rewards, in groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Experience:
    """One rewarded answer of the policy, as the Explorer is told of it.

    Attributes:
        choices: how many experiences the Explorer has under this id: one for each choice of the completion.
    """

    msg_id: str
    reward: float
    run_id: int
    choices: int = 1


@dataclass(frozen=True, slots=True)
class ReadyGroup:
    """A group with the experiences that go out together.

    Attributes:
        id: what the Explorer is told as task_id.
        run_by: who had the policy's answers: the sidecar, a client that replays its agent, or one of the facade.
    """

    id: str
    experiences: tuple[Experience, ...]
    run_by: Literal["sidecar", "client", "facade"] = "sidecar"

    @property
    def repeatable(self) -> bool:
        """Return whether the sidecar can run it again. The agent of a client's group is gone."""
        return self.run_by == "sidecar"

    @property
    def size(self) -> int:
        """Return how many experiences the Explorer is to take for it."""
        return sum(experience.choices for experience in self.experiences)
