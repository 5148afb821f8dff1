"""Personal data and secrets are taken out of what is captured, before it is stored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self, get_args

import structlog
from pydantic import BaseModel, ConfigDict, Field, model_validator

from slipstream.config.python_object import PythonPath, load_object
from slipstream.errors import SlipstreamError
from slipstream.jsontext import to_json
from slipstream.redaction_kinds import KINDS, Span
from slipstream.suspects import Suspects

_log = structlog.get_logger(__name__)

BuiltIn = Literal["api_key", "email", "phone", "credit_card", "ip"]


class RedactionFailed(SlipstreamError):
    """A hook raised, or returned no text: nobody knows what is to be redacted."""


class RedactRule(BaseModel):
    """What to look for: a built-in kind by its name, a pattern of one's own, or what a function of one's own finds.

    Attributes:
        name: stands in the text's place, as `[redacted:name]`; a hook's own, where it fails.
        pattern: a regular expression, or None for the built-in kind of that name.
        python: a function that takes a text and returns it redacted. It is called in a thread, with each text.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=64)
    pattern: re.Pattern[str] | None = None
    python: PythonPath | None = None

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, dict) and "python" in value:
            return {"name": "hook", **value}
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.python is not None:
            if self.pattern is not None:
                raise ValueError("a pattern or a python function, not both")
            if not callable(load_object(self.python)):
                raise ValueError(f"python: a function; found {self.python}, which is none")
        elif self.pattern is None and self.name not in get_args(BuiltIn):
            known = f"one of {', '.join(get_args(BuiltIn))}, {{name, pattern}} or {{python}}"
            raise ValueError(f"{known}; found {self.name}")
        return self


class Redactor:
    """Replaces what the rules find in strings by `[redacted:name]`, in the rules' order.

    Where a hook fails on a text, nothing of that text is let through.
    """

    def __init__(self, rules: Sequence[RedactRule]) -> None:
        self._steps = [_step(rule) for rule in rules]

    def redact(self, value: Any, *, strict: bool = False) -> Any:
        """A copy of a JSON value with its strings redacted; keys, numbers and structure stay as they are.

        Args:
            strict: raise RedactionFailed for a text on which a hook failed, instead of putting `[redacted:name]` in the
                place of all of it.
        """
        return _redacted(value, self._steps, strict)

    @property
    def signs(self) -> Mapping[str, Iterable[str]] | None:
        """For each kind its signs, as `Suspects` wants them; None where there are rules of one's own."""
        kinds = [step.kind for step in self._steps]
        return None if None in kinds else {kind: KINDS[kind].signs for kind in kinds if kind}

    def redact_json(self, value: Any, text: bytes | None = None) -> tuple[Any, bytes]:
        """The same, and as JSON too. Where there is nothing to redact, which takes a few microseconds to see, the
        value is the one that was given, and so is the text.

        Args:
            text: the value as JSON in UTF-8, where that is at hand.

        Raises:
            RedactionFailed: a hook failed on one of its texts.
        """
        suspected = {None} if text is None else self._suspects.within(text)
        if text is None or None in suspected:
            text = to_json(value)  # which escapes no sign of a built-in kind
            suspected = self._suspects.within(text)
        steps = [step for step in self._steps if step.kind is None or step.kind in suspected]
        if not steps:
            return value, text
        redacted = _redacted(value, steps, True)
        return redacted, to_json(redacted)

    @cached_property
    def _suspects(self) -> Suspects:
        return Suspects({step.kind: KINDS[step.kind].signs for step in self._steps if step.kind})


@dataclass(frozen=True, slots=True)
class _Step:
    """One rule, carried out.

    Attributes:
        kind: the built-in kind that it is about; None for a rule of one's own.
        redact: the text without what it finds. Raises RedactionFailed.
    """

    kind: str | None
    redact: Callable[[str], str]
    label: str


def _step(rule: RedactRule) -> _Step:
    label = f"[redacted:{rule.name}]"
    pattern = rule.pattern
    if rule.python is not None:
        return _Step(None, _Hook(rule.python), label)
    if pattern is None:
        find = KINDS[rule.name].find
        return _Step(rule.name, lambda text: _replace(text, find(text), label), label)
    return _Step(
        None,
        lambda text: _replace(text, (match.span() for match in pattern.finditer(text) if match[0]), label),
        label,
    )


class _Hook:
    """A function of the operator's own. What it raises is told once for each kind: without its text, which may quote
    the one that was to be redacted."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._function: Callable[[str], Any] = load_object(path)
        self._told: set[str] = set()

    def __call__(self, text: str) -> str:
        try:
            redacted = self._function(text)
        except Exception as error:  # noqa: BLE001 - it is not ours, and can raise anything
            raise self._failed(type(error).__name__) from None
        if not isinstance(redacted, str):
            raise self._failed(f"it returned {type(redacted).__name__}, and no text")
        return redacted

    def _failed(self, why: str) -> RedactionFailed:
        if why not in self._told:
            self._told.add(why)
            _log.error("redaction_hook_failed", hook=self._path, error=why)
        return RedactionFailed(f"capture.redact: {self._path} failed: {why}")


def _redacted(value: Any, steps: Sequence[_Step], strict: bool) -> Any:
    root = [value]
    pending: list[Any] = [root]
    while pending:  # no recursion: a caller decides how deep its JSON is
        node = pending.pop()
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            if isinstance(child, str):
                node[key] = _redacted_text(child, steps, strict)
            elif isinstance(child, dict | list):
                node[key] = child.copy()
                pending.append(node[key])
    return root[0]


_DATA_URL = re.compile(r"(data:[\w.+-]+/[\w.+-]+;base64,[A-Za-z0-9+/=]*)")


def _redacted_text(text: str, steps: Sequence[_Step], strict: bool) -> str:
    for step in steps:
        # Odd parts are data URLs: pictures and sounds, in whose base64 a match could only be an accident.
        parts = _DATA_URL.split(text) if "data:" in text else [text]
        try:
            parts[::2] = map(step.redact, parts[::2])
        except RedactionFailed:
            if strict:
                raise
            return step.label
        text = "".join(parts)
    return text


def _replace(text: str, spans: Iterator[Span], label: str) -> str:
    done, kept = 0, []
    for start, end in spans:
        kept += [text[done:start], label]
        done = end
    return "".join([*kept, text[done:]]) if kept else text
