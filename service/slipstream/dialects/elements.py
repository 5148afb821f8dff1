"""A request's text as the elements of its list of messages and the frame around them.

A conversation's next request repeats the elements of the one before, byte for byte. So each is stored once, and what
was read before is known by its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode

_SEARCHED = 64
"""Bytes of the first element by which it is found: few, because a long needle takes as long to prepare as the text."""


class Frame(msgspec.Struct, array_like=True, frozen=True):
    """A request without the elements of its list.

    Attributes:
        before: the text up to the first element.
        between: what separates two elements: a comma and blanks.
        after: the text behind the last one.
    """

    before: bytes
    between: bytes
    after: bytes

    @property
    def empty(self) -> bytes:
        """The request with an empty list."""
        return self.before + self.after

    def filled(self, elements: Sequence[bytes]) -> bytes:
        """The request with these elements."""
        return b"%b%b%b" % (self.before, self.between.join(elements), self.after)


class Split(NamedTuple):
    """A text in two parts, of which `frame.filled(elements)` makes the same bytes again."""

    frame: Frame
    elements: Sequence[msgspec.Raw]


def split(text: bytes, key: str) -> Split | None:
    """Split JSON at the list that an object has under this key.

    Args:
        text: UTF-8. It need not be valid: nothing but the ends of values is looked for.

    Returns:
        None where there is no such list, where it is empty, or where its elements are separated in more than one way.
    """
    try:
        found = _fields(text).get(key)
        elements = _elements(found) if found is not None else []
    except (msgspec.MsgspecError, UnicodeError):
        return None
    if not elements:
        return None
    first = memoryview(elements[0])
    begin = text.find(first[:_SEARCHED])
    if len(elements) == 1:  # the same as behind a colon, so that the frame stays when there are more
        between = b", " if b'": ' in text[:begin] else b","
    else:
        end = begin + len(first)
        between = text[end : text.find(memoryview(elements[1])[:1], end)]
    listed = between.join(elements)
    if not text.startswith(listed, begin):  # the frame has the same text as the list, or blanks differ
        return None
    return Split(Frame(text[:begin], between, text[begin + len(listed) :]), elements)
