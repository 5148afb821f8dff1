"""Texts as they read once their escapes are undone, with the way back to where each character stood.

Arguments of tool calls are JSON within a string, and often hold JSON of their own. A secret in there may be written
with escapes of any level (`\\u0073k-...`), which no pattern for the secret itself matches.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator

Span = tuple[int, int]

MAX_LEVELS = 4
"""Levels of escapes that are undone: JSON in JSON in JSON within a string, and one to spare."""

_JSON = re.compile(r'\\(?:u([0-9A-Fa-f]{4})|(["\\/bfnrt]))')
_PERCENT = re.compile(r"%([0-9A-Fa-f]{2})")
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class Unescaped:
    """A text with the escapes of one level undone.

    Attributes:
        text: each escape is one character in it. (Of UTF-8 in percents, each byte is: secrets are ASCII.)
    """

    def __init__(self, text: str, escape: re.Pattern[str], character: Callable[[re.Match[str]], str]) -> None:
        pieces: list[str] = []
        self._at: list[int] = []  # where the escapes' characters are in the new text
        self._starts: list[int] = []  # and where the escapes were
        self._ends: list[int] = []
        done = length = 0
        for match in escape.finditer(text):
            start, end = match.span()
            pieces += (text[done:start], character(match))
            length += start - done
            self._at.append(length)
            self._starts.append(start)
            self._ends.append(end)
            length += 1
            done = end
        self.text = "".join([*pieces, text[done:]]) if pieces else text

    def __bool__(self) -> bool:
        """Return whether there was an escape."""
        return bool(self._at)

    def before(self, position: int) -> int:
        """Return where the character at that position of the new text begins in the old one."""
        passed = bisect_left(self._at, position)
        if not passed:
            return position
        return self._ends[passed - 1] + position - self._at[passed - 1] - 1

    def begin(self, position: int) -> int:
        """A position of the old text, moved to the beginning of the escape that it is amid."""
        inside = bisect_left(self._starts, position) - 1
        return self._starts[inside] if inside >= 0 and position < self._ends[inside] else position


def json_unescaped(text: str) -> Unescaped:
    """The text without one level of JSON's escapes; a backslash that begins none stays."""
    return Unescaped(text, _JSON, _json_character)


def percent_unescaped(text: str) -> Unescaped:
    """The text without the percent-encoding of URLs."""
    return Unescaped(text, _PERCENT, lambda match: chr(int(match[1], 16)))


def _json_character(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _SHORT.get(match[2], match[2])


def spans_through_escapes(text: str, find: Callable[[str], Iterable[Span]], *, percent: bool = False) -> Iterator[Span]:
    """The spans, in order and apart, of what `find` finds in a text, however its characters are escaped.

    Args:
        percent: the text is of a URL, and is read without its percents too.
    """
    levels: list[Unescaped] = []
    if percent and (unescaped := percent_unescaped(text)):
        levels.append(unescaped)
    while len(levels) < MAX_LEVELS and "\\" in (levels[-1].text if levels else text):
        unescaped = json_unescaped(levels[-1].text if levels else text)
        if not unescaped:
            break
        levels.append(unescaped)
    if not levels:
        return iter(find(text))
    found = {(levels[0].begin(start), end) for start, end in find(text)}
    for depth, level in enumerate(levels):
        for start, end in find(level.text):
            for above in reversed(levels[: depth + 1]):
                start, end = above.before(start), above.before(end)
            found.add((start, end))
    return _apart(sorted(found))


def _apart(spans: Iterable[Span]) -> Iterator[Span]:
    """Sorted spans, with those that overlap made one."""
    last: Span | None = None
    for start, end in spans:
        if last is None:
            last = start, end
        elif start < last[1]:
            last = last[0], max(last[1], end)
        else:
            yield last
            last = start, end
    if last is not None:
        yield last


def replace(text: str, cuts: Iterable[tuple[int, int, str]]) -> str:
    """The text with what is between two positions replaced, for each of the cuts."""
    done, kept = 0, []
    for start, end, label in cuts:
        kept += [text[done:start], label]
        done = end
    return "".join([*kept, text[done:]]) if kept else text
