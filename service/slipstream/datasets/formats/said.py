"""A row without its provenance, in normal form: the part of it that a format has to say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from slipstream.datasets.formats.normal import Unsayable, normal_message, normal_text, normal_tools
from slipstream.datasets.row import Kind, Provenance, Row

__all__ = ["Message", "Said", "Unsayable"]

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """Conversation, answer and tools of a row, each message in normal form."""

    prompt: Sequence[Message]
    answer: Message
    tools: Sequence[dict[str, Any]] = ()
    rejected: Message | None = None
    good: bool | None = None
    correction: str | None = None

    @classmethod
    def of(cls, row: Row) -> Self:
        """Bring a row into normal form.

        Raises:
            Unsayable: it has what no format can say, or an answer that says nothing.
        """
        answers = [normal_message(answer) for answer in (row.answer, row.rejected) if answer is not None]
        for answer in answers:
            if answer["role"] != "assistant":
                raise Unsayable("answer_not_by_the_assistant")
            if not answer.get("content") and not answer.get("tool_calls"):
                raise Unsayable("refusal" if answer.get("refusal") else "empty_answer")
        return cls(
            prompt=[normal_message(message) for message in row.prompt],
            answer=answers[0],
            tools=normal_tools(row.tools),
            rejected=answers[1] if len(answers) > 1 else None,
            good=row.good,
            correction=None if row.correction is None else normal_text(row.correction),
        )

    @property
    def messages(self) -> list[Message]:
        """All messages, the answers last."""
        return [*self.prompt, self.answer, *([self.rejected] if self.rejected else [])]

    def row(self, kind: Kind, provenance: Provenance) -> Row:
        """Return it as a row again."""
        return Row(kind, self.prompt, self.answer, provenance, self.tools, self.rejected, self.good, self.correction)
