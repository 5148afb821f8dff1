"""Search of a JSON text for signs of secrets: one pass over its bytes, before any string is looked at.

Most texts hold nothing of the kind, and the patterns that tell exactly take a hundred times as long. Hyperscan, because
it looks for all signs at once, several gigabytes a second: RE2 and Aho-Corasick take four times as long, `re` thirty.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

import hyperscan

_ESCAPES = r"\\u00(?:2[0589a-fA-F]|3[0-9aAdD]|[4-7])|\\/"
"""A printable ASCII sign as an escape, which could hide any sign; `<`, `>`, `&` and quotation marks, which some
programs escape always, are in none."""


class Suspects:
    """Looks for signs of several kinds of things.

    Args:
        signs: for each kind the patterns, in Hyperscan's syntax, of which one matches wherever the kind is. They are
            about printable ASCII other than `<`, `>`, `&`, quotation marks and the backslash, which JSON leaves as it
            is, and never about what stands before or after it, which JSON may write in another way.
    """

    def __init__(self, signs: Mapping[str, Iterable[str]]) -> None:
        self._kinds: tuple[str | None, ...] = (None, *signs)
        patterns = [(0, _ESCAPES)]
        patterns += [(number, sign) for number, kind in enumerate(signs, start=1) for sign in signs[kind]]
        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        self._database.compile(
            expressions=[pattern.encode("ascii") for _, pattern in patterns],
            ids=[number for number, _ in patterns],
            elements=len(patterns),
            flags=[hyperscan.HS_FLAG_SINGLEMATCH] * len(patterns),
        )
        self._scanning = threading.Lock()  # a scan lets other threads run, and there is one space to work in

    def within(self, text: bytes) -> set[str | None]:
        """The kinds that a JSON text may hold, with None where escapes may hide any."""
        found: set[int] = set()
        with self._scanning:
            self._database.scan(text, match_event_handler=lambda number, *_: found.add(number))
        return {self._kinds[number] for number in found} if found else set()
