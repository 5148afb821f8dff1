"""Personal data and secrets are taken out of what is captured, before it is stored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from slipstream.jsontext import to_json
from slipstream.redaction_kinds import KINDS, Span
from slipstream.suspects import Suspects

BuiltIn = Literal["api_key", "email", "phone", "credit_card", "ip"]


class RedactRule(BaseModel):
    """What to look for: a built-in kind by its name, or a pattern of one's own.

    Attributes:
        name: stands in the text's place, as `[redacted:name]`.
        pattern: a regular expression, or None for the built-in kind of that name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=64)
    pattern: re.Pattern[str] | None = None

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.pattern is None and self.name not in get_args(BuiltIn):
            raise ValueError(f"one of {', '.join(get_args(BuiltIn))}, or {{name, pattern}}; found {self.name}")
        return self


class Redactor:
    """Replaces what the rules find in strings by `[redacted:name]`, in the rules' order."""

    def __init__(self, rules: Sequence[RedactRule]) -> None:
        self._steps = [_step(rule) for rule in rules]

    def redact(self, value: Any) -> Any:
        """A copy of a JSON value with its strings redacted; keys, numbers and structure stay as they are."""
        return _redacted(value, self._steps)

    @property
    def signs(self) -> Mapping[str, Iterable[str]] | None:
        """For each kind its signs, as `Suspects` wants them; None where there are patterns of one's own."""
        kinds = [step.kind for step in self._steps]
        return None if None in kinds else {kind: KINDS[kind].signs for kind in kinds if kind}

    def redact_json(self, value: Any, text: bytes | None = None) -> tuple[Any, bytes]:
        """The same, and as JSON too. Where there is nothing to redact, which takes a few microseconds to see, the
        value is the one that was given, and so is the text.

        Args:
            text: the value as JSON in UTF-8, where that is at hand.
        """
        suspected = {None} if text is None else self._suspects.within(text)
        if text is None or None in suspected:
            text = to_json(value)  # which escapes no sign of a built-in kind
            suspected = self._suspects.within(text)
        steps = [step for step in self._steps if step.kind is None or step.kind in suspected]
        if not steps:
            return value, text
        redacted = _redacted(value, steps)
        return redacted, to_json(redacted)

    @cached_property
    def _suspects(self) -> Suspects:
        return Suspects({step.kind: KINDS[step.kind].signs for step in self._steps if step.kind})


@dataclass(frozen=True, slots=True)
class _Step:
    """One rule, carried out.

    Attributes:
        kind: the built-in kind that it is about; None for a pattern of one's own.
    """

    kind: str | None
    find: Callable[[str], Iterator[Span]]
    label: str


def _step(rule: RedactRule) -> _Step:
    label = f"[redacted:{rule.name}]"
    pattern = rule.pattern
    if pattern is None:
        return _Step(rule.name, KINDS[rule.name].find, label)
    return _Step(None, lambda text: (match.span() for match in pattern.finditer(text) if match[0]), label)


def _redacted(value: Any, steps: Sequence[_Step]) -> Any:
    root = [value]
    pending: list[Any] = [root]
    while pending:  # no recursion: a caller decides how deep its JSON is
        node = pending.pop()
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            if isinstance(child, str):
                node[key] = _redacted_text(child, steps)
            elif isinstance(child, dict | list):
                node[key] = child.copy()
                pending.append(node[key])
    return root[0]


_DATA_URL = re.compile(r"(data:[\w.+-]+/[\w.+-]+;base64,[A-Za-z0-9+/=]*)")


def _redacted_text(text: str, steps: Sequence[_Step]) -> str:
    for step in steps:
        # Odd parts are data URLs: pictures and sounds, in whose base64 a match could only be an accident.
        parts = _DATA_URL.split(text) if "data:" in text else [text]
        parts[::2] = (_replace(part, step.find(part), step.label) for part in parts[::2])
        text = "".join(parts)
    return text


def _replace(text: str, spans: Iterator[Span], label: str) -> str:
    done, kept = 0, []
    for start, end in spans:
        kept += [text[done:start], label]
        done = end
    return "".join([*kept, text[done:]]) if kept else text
