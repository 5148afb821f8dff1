"""Rules of what is to be redacted, and each of them carried out on a text."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, Literal, Protocol, Self, get_args

import regex
import structlog
from pydantic import BaseModel, ConfigDict, Field, model_validator

from slipstream.errors import SlipstreamError
from slipstream.isolation import NotFinished, Pool, Raised
from slipstream.redaction.escapes import Span, replace, spans_through_escapes
from slipstream.redaction.kinds import KINDS
from slipstream.user_code.python_object import PythonPath, check_call, load_object, may_import

_log = structlog.get_logger(__name__)

_HOOK_DEADLINE = 5.0
"""Seconds that a hook has for a text; capture waits for it."""

_PATTERN_DEADLINE = 1.0
"""Seconds that a pattern has for a text."""

BuiltIn = Literal["api_key", "password", "email", "phone", "credit_card", "ip"]


class RedactionFailed(SlipstreamError):
    """A hook raised, or returned no text: nobody knows what is to be redacted.

    Attributes:
        label: the hook's, which stands in the place of a text that must not be let through.
    """

    def __init__(self, message: str, label: str) -> None:
        super().__init__(message)
        self.label = label


class RedactRule(BaseModel):
    """One rule of redaction: a built-in kind by its name, a pattern, or a function of the user's own.

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
            if may_import():
                hook = load_object(self.python)
                if not callable(hook):
                    raise ValueError(f"python: a function; found {self.python}, which is none")
                check_call(hook, "a text", {}, self.python)
        elif self.pattern is None and self.name not in get_args(BuiltIn):
            known = f"one of {', '.join(get_args(BuiltIn))}, {{name, pattern}} or {{python}}"
            raise ValueError(f"{known}; found {self.name}")
        return self


class Step(Protocol):
    """One rule, carried out."""

    @property
    def kind(self) -> str | None:
        """The built-in kind that it is about; None for a rule of one's own."""
        ...

    @property
    def label(self) -> str:
        """Return the text that replaces a find."""
        ...

    def redact(self, text: str, percent: bool) -> str:
        """The text without what the rule finds in it.

        Args:
            percent: it is of a URL, and may be percent-encoded.

        Raises:
            RedactionFailed: it could not be found out.
        """
        ...

    def redact_split(self, texts: Sequence[str]) -> Sequence[str]:
        """The texts without what begins in one of them and ends in another."""
        ...

    def is_value(self, name: str, value: str) -> bool:
        """Return whether the value of a field of that name is to be redacted, whatever its form."""
        ...


def step_of(rule: RedactRule, pool: Pool) -> Step:
    """The rule, ready to be carried out.

    Args:
        pool: the process of hooks.
    """
    label = f"[redacted:{rule.name}]"
    pattern = rule.pattern
    if rule.python is not None:
        return _Hook(rule.python, label, pool)
    if pattern is None:
        kind = KINDS[rule.name]
        return _Finder(rule.name, label, kind.find, kind.is_value)
    return _Finder(None, label, partial(_find, regex.compile(pattern.pattern, pattern.flags), label), lambda *_: False)


def _find(pattern: regex.Pattern[str], label: str, text: str) -> Iterator[Span]:
    """Find a pattern of the operator's own, by the `regex` package, which can give up, as `re` cannot."""
    try:
        for match in pattern.finditer(text, timeout=_PATTERN_DEADLINE, concurrent=True):
            if match[0]:
                yield match.span()
    except TimeoutError as error:
        why = f"capture.redact: the pattern {pattern.pattern} took longer than {_PATTERN_DEADLINE:g} s"
        raise RedactionFailed(why, label) from error


@dataclass(frozen=True, slots=True)
class _Finder:
    """A built-in kind, or a pattern of one's own."""

    kind: str | None
    label: str
    find: Callable[[str], Iterator[Span]]
    is_value: Callable[[str, str], bool]

    def redact(self, text: str, percent: bool) -> str:
        spans = spans_through_escapes(text, self.find, percent=percent)
        return replace(text, ((start, end, self.label) for start, end in spans))

    def redact_split(self, texts: Sequence[str]) -> Sequence[str]:
        ends = list(accumulate(map(len, texts)))
        cuts: dict[int, list[tuple[int, int, str]]] = {}
        for start, end in spans_through_escapes("".join(texts), self.find):
            first, last = bisect_right(ends, start), bisect_left(ends, end)
            for part in range(first, last + 1 if first != last else first):
                begin = ends[part] - len(texts[part])
                cut = max(start - begin, 0), min(end, ends[part]) - begin, self.label if part == first else ""
                cuts.setdefault(part, []).append(cut)
        return [replace(text, cuts.get(part, ())) for part, text in enumerate(texts)]


class _NoText(SlipstreamError):
    """A hook returned something else."""


def _hooked(path: str, text: str) -> str:
    """Call the hook of that name, in its process. Raises _NoText."""
    redacted = load_object(path)(text)
    if not isinstance(redacted, str):
        raise _NoText(f"it returned {type(redacted).__name__}, and no text")
    return redacted


class _Hook:
    """A function of the operator's own, called in a process of its own with each text alone. What it raises is logged
    once for each kind: without its text, which may quote the one that was to be redacted."""

    kind = None

    def __init__(self, path: str, label: str, pool: Pool) -> None:
        self.label = label
        self._path = path
        self._pool = pool
        pool.prepare(load_object, path)
        self._told: set[str] = set()

    def redact(self, text: str, percent: bool) -> str:
        try:
            redacted: str = self._pool.call(_hooked, self._path, text, timeout=_HOOK_DEADLINE)
        except _NoText as error:
            raise self._failed(str(error)) from None
        except NotFinished as error:
            raise self._failed(f"it {error}") from None
        except Raised as error:
            raise self._failed(error.kind) from None
        return redacted

    def redact_split(self, texts: Sequence[str]) -> Sequence[str]:
        return texts

    def is_value(self, name: str, value: str) -> bool:
        return False

    def _failed(self, why: str) -> RedactionFailed:
        if why not in self._told:
            self._told.add(why)
            _log.error("redaction_hook_failed", hook=self._path, error=why)
        return RedactionFailed(f"capture.redact: {self._path} failed: {why}", self.label)
