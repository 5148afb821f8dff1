"""A simulated user of the demo, who asks for sums and says in words what was wrong with an answer."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from slipstream.datasets.row import Kind, Message, Provenance, Row, Source
from slipstream.embedded.chat import parse_tool_calls

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "demo"))

from agent import _EXAMPLE
from calculator import TOOL, reply_to_user
from reward import Score, verify
from tasks import Task, held_out_tasks, training_tasks

__all__ = ["Task", "held_out_tasks", "training_tasks"]

Words = Literal["exact", "vague"]
"""The expression to calculate, or only that the tool is to be used."""

TOOLS = (TOOL,)


def prompt(task: Task) -> list[Message]:
    """The messages that the demo's agent sends."""
    return [*_EXAMPLE, {"role": "user", "content": task.question}]


@dataclass(frozen=True)
class Answered:
    """An answer, as the user gets it, and how good it was."""

    task: Task
    message: Message
    score: Score


def answered(task: Task, text: str) -> Answered:
    """Read what the model wrote as the Explorer reads it, and carry it out as the agent does."""
    content, calls = parse_tool_calls(text)
    message: dict[str, Any] = {"role": "assistant", "content": content or ""}
    if calls:
        message["tool_calls"] = [call.model_dump() for call in calls]
    return Answered(task, message, verify(reply_to_user(content or "", message.get("tool_calls", [])), task.reference))


def words(given: Answered, how: Words) -> str | None:
    """Return the message of the user; None if the answer was right."""
    if given.score.reward:
        return None
    if how == "exact":
        expression = given.task.question.partition(":")[2].strip(" =")
        return f"No: call the calculator with {expression}"
    if given.score.called:
        return "No, that is not right. You gave the calculator another expression than mine."
    return "no, use the calculator tool"


def correction(number: int, given: Answered, said: str) -> Row:
    """The row of a correction."""
    provenance = Provenance(f"task-{number}", f"session-{number}", "default", Source.NEXT_MESSAGE)
    return Row(Kind.CORRECTION, prompt(given.task), given.message, provenance, TOOLS, correction=said)
