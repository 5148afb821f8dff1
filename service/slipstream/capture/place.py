"""The place of a call: its task and its session, and what was said before it where only the provider knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from slipstream.dialects.form import Problem
from slipstream.trajectory import Message


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
        messages: all of it, the answer's included; without the instructions, which hold for one call.
        problem: the reason why the policy cannot be asked this.
        place: of the call that gave the answer.
    """

    messages: Sequence[Message]
    problem: Problem | None
    place: Place
