"""A row of a data set, in one form whatever it came from and whatever format it is written in.

Messages and tools are those of OpenAI's chat completions API, redacted as they were stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from typing import Any

from slipstream.jsontext import to_json

Message = Mapping[str, Any]


class Kind(StrEnum):
    """Kind of a data set: what each of its rows teaches.

    SFT: give this answer. PREFERENCE: prefer the chosen answer to the rejected one. KTO: this answer is good, or bad.
    CORRECTION: answer as one does who has read what the user said about this answer.
    """

    SFT = "sft"
    PREFERENCE = "preference"
    KTO = "kto"
    CORRECTION = "correction"


class Source(StrEnum):
    """Origin of a row."""

    PRODUCTION = "production"
    """An answer of the production model."""
    POLICY = "policy"
    """An answer of the policy."""
    RUNS = "runs"
    """A pair of two runs of one group, by their rewards."""
    PRODUCTION_VS_POLICY = "production_vs_policy"
    """A pair of production's answer and a run's, by their rewards."""
    PREFERENCES = "preferences"
    """A pair that people judged."""
    THUMBS = "thumbs"
    """Answers that users liked and disliked."""
    NEXT_MESSAGE = "next_message"
    """An answer that the user's next message corrected."""
    COMMENT = "comment"
    """An answer with feedback that has a comment."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of a row, for people and for a later erasure. It quotes nothing of the conversation.

    Attributes:
        task: reference of the task, with its tenant.
        session: reference of its session, with its tenant; kept as `session_hash` in files.
        group: that the runs are of; None for production's answers.
        msg_ids: of the answers in the row, the taught (or chosen) one first.
        models: who gave each of these answers: the production model's name, or `version:N` of the policy.
        rewards: of each of these answers; None where it was not scored.
        breakdown: components of the first one's reward.
        feedback: rewards that users gave to each answer; None where none did.
        labels: of the task.
        created_at: Unix seconds at which the first answer was stored.
        held_out_at: place of the session from 0 to 1, which is held out with any share above that; None if not known.
        said_in: reference of the task that a correction was said in, if that is another one.
    """

    task: str
    session: str
    tenant: str
    source: Source
    group: str | None = None
    msg_ids: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    rewards: tuple[float | None, ...] = ()
    breakdown: Mapping[str, float | None] = field(default_factory=dict)
    feedback: tuple[float | None, ...] = ()
    labels: tuple[str, ...] = ()
    created_at: float = 0.0
    held_out_at: float | None = None
    said_in: str | None = None

    def written(self, digest: str) -> dict[str, Any]:
        """Return the line of `*.provenance.jsonl` for a row with this digest."""
        told = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "session"}
        if self.said_in is None:
            del told["said_in"]
        else:
            told["said_in_hash"] = hashed(self.said_in)
        return {"digest": digest, **told, "session_hash": hashed(self.session), "task_hash": hashed(self.task)}


@dataclass(frozen=True)
class Row:
    """A row of a data set.

    Attributes:
        prompt: messages up to the answer, at least one.
        tools: that the model may call.
        answer: the assistant message that is taught, chosen, labelled, or corrected.
        rejected: of a preference: the assistant message that is not to be given.
        good: of KTO: whether the answer is good.
        correction: the user's words about the answer, which is then the one that was corrected, and is not taught.
    """

    kind: Kind
    prompt: Sequence[Message]
    answer: Message
    provenance: Provenance
    tools: Sequence[Mapping[str, Any]] = ()
    rejected: Message | None = None
    good: bool | None = None
    correction: str | None = None

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what is taught, in hexadecimal: equal for rows that teach the same."""
        taught = {
            "kind": self.kind,
            "prompt": list(self.prompt),
            "tools": list(self.tools),
            "answer": self.answer,
            "rejected": self.rejected,
            "good": self.good,
            "correction": self.correction,
        }
        return hashlib.sha256(to_json(taught)).hexdigest()


def hashed(ref: str) -> str:
    """Return the name under which a data set knows a session or a task that it must be able to find again, and not to
    tell: the first 32 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(ref.encode()).hexdigest()[:32]
