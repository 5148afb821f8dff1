"""Messages that were read before, known by their exact text.

A conversation's next request begins with the messages of the one before it, byte for byte. Where they end is
remembered with a hash of their text: so they need not be stored again.
"""

from __future__ import annotations

import secrets
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from xxhash import xxh3_128, xxh3_128_digest

from slipstream.dialects.elements import Split, split
from slipstream.store.segments import NewRequest, Segment, added, repeated, whole

_SEED = secrets.randbits(64)
"""Seed of hashes that live as long as this process. It is secret, so that a caller cannot construct two texts with
equal hashes."""

FEW = 2
"""Messages of a conversation's first request, mostly: it is stored by itself, because nothing may ever go on from it.
What does is stored as the beginning."""


class Messages(NamedTuple):
    """A request's messages by their text.

    Attributes:
        owner: names the caller, and the session where it is named: others' messages are never taken for theirs.
        split: the request's text.
    """

    owner: bytes
    split: Split


def messages_of(text: bytes, key: str, messages: object, owner: bytes) -> Messages | None:
    """The messages of a request, which are the list under this key; None where they are few, or where its text cannot
    be split.

    Args:
        messages: the value under the key.
    """
    parts = split(text, key) if isinstance(messages, list) and len(messages) > FEW else None
    return None if parts is None else Messages(owner, parts)


class Prefixes:
    """The lists of messages that ended requests, and the segments that hold them; for one reader at a time.

    Args:
        limit: lists remembered; those that were not met for longest go first. One takes about 400 bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: OrderedDict[bytes, tuple[int, Segment]] = OrderedDict()
        """By the hash of the messages' text, its length and the segment that they end with."""
        self._lengths: Counter[int] = Counter()
        """Lengths of the texts that are known: others need not be hashed."""
        self._fresh: list[Segment] = []

    def stored_form(self, text: bytes, messages: Messages | None) -> NewRequest:
        """A request as it is to be stored: what it adds to an earlier one. Linear in its length."""
        if messages is None:
            return whole(text)
        frame, elements = messages.split
        frame_name = xxh3_128_digest(b"%b\0%b\0%b" % (frame.before, frame.between, frame.after), _SEED)
        listed = text[len(frame.before) : len(text) - len(frame.after)] + frame.between  # one behind each
        hashed, begin, end = xxh3_128(messages.owner + b"\0", _SEED), 0, 0
        length, parent = 0, None
        for count, element in enumerate(elements, start=1):
            end += memoryview(element).nbytes + len(frame.between)
            if end in self._lengths or count == len(elements):
                hashed.update(listed[begin:end])
                begin = end
                name = hashed.digest()
                if (found := self._segment(name)) is not None:
                    length, parent = count, found
        if parent is not None and length == len(elements):
            return repeated(text, frame, parent, frame_name)
        segment = Segment(frame_name, parent)
        self._fresh.append(segment)
        self._remember(name, len(listed), segment)
        return added(text, frame, elements[length:], segment, parent)

    def _segment(self, name: bytes) -> Segment | None:
        """The segment that messages of this name end with, if they can be gone on from."""
        _, segment = self._known.get(name, (0, None))
        if segment is None or not segment.usable:
            return None
        self._known.move_to_end(name)
        return segment

    def _remember(self, name: bytes, length: int, segment: Segment) -> None:
        if name in self._known:
            self._forget(name)
        self._known[name] = length, segment
        self._lengths[length] += 1
        if len(self._known) > self._limit:
            self._forget(next(iter(self._known)))

    def _forget(self, name: bytes) -> None:
        length, _ = self._known.pop(name)
        self._lengths[length] -= 1
        if not self._lengths[length]:
            del self._lengths[length]

    def stored(self, numbers: Mapping[Segment, int]) -> None:
        """The requests that were made ready are stored: these segments with these numbers, others not at all."""
        for segment in self._fresh:
            segment.number = numbers.get(segment)
            segment.fresh = False
        self._fresh.clear()
