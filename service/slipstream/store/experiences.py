"""What a delivery is made of: experiences with their rewards, in groups."""

from __future__ import annotations

from dataclasses import dataclass


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
        from_facade: its answers went to a client of the facade, so it cannot be run again.
    """

    id: str
    experiences: tuple[Experience, ...]
    from_facade: bool = False

    @property
    def size(self) -> int:
        """How many experiences the Explorer is to take for it."""
        return sum(experience.choices for experience in self.experiences)
