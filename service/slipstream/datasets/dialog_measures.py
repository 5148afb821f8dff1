"""Measures of dialogs, by which they are chosen for training."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from slipstream.datasets.dialogs import Dialog, DialogError, messages_of, rows_of, tagged
from slipstream.datasets.row import Message, Provenance, Row
from slipstream.trajectory import message_text, message_tool_calls

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")
"""A run of letters and digits, or a Chinese or Japanese character."""

_WINDOW = 50
"""Words of a window of `lexical_diversity`, as its authors advise for short texts."""

_MANY_TOOLS = 50
"""Tools from which on finding the right one is retrieval and not selection."""

TASK_TYPES = ("tool_selection", "multi_step_planning", "timing_decision", "tool_retrieval")
"""Tasks of an agent, by what it has to decide."""

TASK_ALIASES = {"planning": "multi_step_planning", "timing": "timing_decision", "retrieval": "tool_retrieval"}
"""Short names of these."""


@dataclass(frozen=True, slots=True)
class ProcessedDialog:
    """A dialog with its rows and measures.

    Attributes:
        messages: of the whole dialog.
        rows: one for each answer of the assistant, labelled with the task.
        text: what assistant and tools said, with tags.
        loss: mean negative log-likelihood of a token of its answers, in nats; None until a model has measured it.
        token_length: of all messages.
        lexical_diversity: of the assistant's text, in [0, 1].
    """

    messages: Sequence[Message]
    rows: Sequence[Row]
    text: str
    task_type: str
    token_length: int
    lexical_diversity: float
    loss: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


def processed(dialog: Dialog, provenance: Provenance, count: Callable[[str], int] | None = None) -> ProcessedDialog:
    """Make rows of a dialog and measure it.

    Args:
        provenance: of its rows; the task's name is added to its labels.
        count: the number of tokens of a text; by default its words.

    Raises:
        DialogError: a turn cannot be read, nothing is taught, or `metadata.loss` is no number.
    """
    messages = messages_of(dialog)
    task = task_type(dialog, messages)
    rows = rows_of(messages, dialog.tools, replace(provenance, labels=(*provenance.labels, task)))
    if not rows:
        raise DialogError(f"dialog {dialog.dialog_id or '?'}: expected a user's turn and an answer to it")
    loss = dialog.metadata.get("loss")
    if loss is not None and (isinstance(loss, bool) or not isinstance(loss, int | float)):
        raise DialogError(f"dialog {dialog.dialog_id or '?'}: metadata.loss: expected a number, found {loss!r}")
    count = count or (lambda text: len(words(text)))
    said = " ".join(message_text(message) for message in messages if message["role"] == "assistant")
    return ProcessedDialog(
        messages=messages,
        rows=rows,
        text=tagged(messages),
        task_type=task,
        token_length=sum(count(message_text(message)) for message in messages) + count(tagged_calls(messages)),
        lexical_diversity=lexical_diversity(said),
        loss=loss,
        metadata=dict(dialog.metadata),
    )


def task_type(dialog: Dialog, messages: Sequence[Message]) -> str:
    """Return the task of a dialog: `metadata.task_type`, or else by its calls. One without calls teaches when not to
    call a tool."""
    given = dialog.metadata.get("task_type")
    if isinstance(given, str) and given:
        return TASK_ALIASES.get(given, given)
    calls = sum(len(message_tool_calls(message)) for message in messages)
    if not calls:
        return "timing_decision"
    if calls > 1:
        return "multi_step_planning"
    return "tool_retrieval" if len(dialog.tools) >= _MANY_TOOLS else "tool_selection"


def tagged_calls(messages: Sequence[Message]) -> str:
    """Return the tool calls of messages as one text."""
    return tagged([{"role": "assistant", "tool_calls": message_tool_calls(message)} for message in messages])


def words(text: str) -> list[str]:
    """Return the words of a text, in lower case; each Chinese or Japanese character is one."""
    return _WORD.findall(text.lower())


def lexical_diversity(text: str) -> float:
    """Mean share of different words in a window of 50, over all windows (MATTR: M. Covington and J. McFall, "Cutting
    the Gordian knot", 2010). The share in the whole text would fall with its length. 0 for a text without words."""
    found = words(text)
    if len(found) <= _WINDOW:
        return len(set(found)) / len(found) if found else 0.0
    counts: dict[str, int] = {}
    total = 0
    for place, word in enumerate(found):
        counts[word] = counts.get(word, 0) + 1
        if place >= _WINDOW:
            gone = found[place - _WINDOW]
            counts[gone] -= 1
            if not counts[gone]:
                del counts[gone]
        if place >= _WINDOW - 1:
            total += len(counts)
    return total / (len(found) - _WINDOW + 1) / _WINDOW
