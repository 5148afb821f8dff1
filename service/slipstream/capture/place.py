"""The place of a call: its task and its session, and what was said before it where only the provider knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from slipstream.dialects.form import Held, Problem


@dataclass(frozen=True, slots=True)
class Place:
    """Task and session of a call, by their ids in the store.

    Attributes:
        new_task: the task's id was made for this call.
    """

    session_id: str
    task_id: str
    new_task: bool = field(default=False, compare=False)


class Earlier(NamedTuple):
    """A conversation up to an answer of production.

    Attributes:
        held: all of it, the answer included.
        problem: the reason why the policy cannot be asked this.
        place: of the call that gave the answer.
    """

    held: Held
    problem: Problem | None
    place: Place
