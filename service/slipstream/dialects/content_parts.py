"""Content that a stream brings as lists of parts, as Mistral's reasoning models have it, put together again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slipstream.dialects.body import Unreadable

_Part = dict[str, Any]


class ContentParts:
    """Gathers the parts of one message: texts that follow each other are one part, and so are thoughts.

    Args:
        pieces: the first ones.

    Raises:
        Unreadable: as `add`.
    """

    def __init__(self, *pieces: str | Sequence[Any]) -> None:
        self._parts: list[_Part] = []
        for piece in pieces:
            self.add(piece)

    def add(self, piece: str | Sequence[Any]) -> None:
        """
        Raises:
            Unreadable: `no_answer`, a part is of another form.
        """
        if piece == "":
            return
        for part in [{"type": "text", "text": piece}] if isinstance(piece, str) else piece:
            if not isinstance(part, dict):
                raise Unreadable("no_answer")
            self._add(part)

    @property
    def whole(self) -> str | list[_Part]:
        """The content as it would have come at once: one text where it is nothing but text."""
        parts = self.parts
        if all(part.get("type") == "text" for part in parts):
            return "".join([part["text"] for part in parts])
        return parts

    @property
    def parts(self) -> list[_Part]:
        """The parts so far."""
        return [_whole(part) for part in self._parts]

    def _add(self, part: _Part) -> None:
        kind = part.get("type")
        last = self._parts[-1] if self._parts and self._parts[-1].get("type") == kind else None
        thought = part.get("thinking")
        if kind == "text":
            if not isinstance(part.get("text"), str):
                raise Unreadable("no_answer")
            if last is None:
                self._parts.append(part | {"text": [part["text"]]})
            else:
                last["text"].append(part["text"])
        elif kind == "thinking" and isinstance(thought, list):
            within = None if last is None else last.get("thinking")
            if last is None or not isinstance(within, ContentParts):
                last, within = {}, ContentParts()
                self._parts.append(last)
            within.add(thought)
            last.update(part | {"thinking": within})
        else:
            self._parts.append(part)


def _whole(part: _Part) -> _Part:
    thought = part.get("thinking")
    if isinstance(thought, ContentParts):
        return part | {"thinking": thought.parts}
    return part | {"text": "".join(part["text"])} if part.get("type") == "text" else part
