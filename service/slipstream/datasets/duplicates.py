"""Rows that were there already: equal ones, and ones of which so much is alike.

Near duplicates are found by MinHash (Broder, 1997) and by locality-sensitive hashing in bands (Leskovec, Rajaraman and
Ullman, "Mining of Massive Datasets", 3.4). Two rows are near if their prompts, their answers and what else they teach
are, each for itself: the steps of an agent share almost all of their prompt, and teach different answers. The system
message does not count, since all rows of an application share it.

Memory: about 120 bytes for each row that is kept. For near ones another 257 bytes (385 for pairs and corrections), and
a table of 64 MiB, which does not grow. It knows the latest row of each slot, and what it finds is compared: it takes no
row for a duplicate of one that it only collides with, and it misses some (with a million rows about one of twenty at a
threshold of 0.85, one of a hundred at a similarity of 0.9).
"""

from __future__ import annotations

import mmap
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

import xxhash

from slipstream.datasets import config
from slipstream.datasets.row import Message, Row
from slipstream.errors import ConfigError

_HASHES = 128
"""Hash functions of a MinHash: the standard error of a similarity of 0.85 is 0.03."""
_GRAM = 5
_SLOTS = 1 << 24
"""Size of the table, four bytes a slot: 16 slots for each of a million rows."""
_PIECE = 4096
"""5-grams that are made at a time."""
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]|\w+")
"""A word, or a character of a script that puts no spaces between words."""

Found = Literal["duplicate", "near_duplicate"]


class Duplicates:
    """Tells which rows of a stream were there already; the first of each stays. The same rows give the same result.

    Args:
        how: what counts as the same.
        seed: of the hash functions.

    Raises:
        ConfigError: near duplicates are asked for, and rensa is not installed.
    """

    def __init__(self, how: config.Duplicates, seed: int) -> None:
        self._digests: set[bytes] = set()
        self._near = None if how.near is None else _Near(how.near, seed)

    def seen(self, row: Row) -> Found | None:
        """Return why the row is dropped, or None, and then it is known from now on."""
        digest = bytes.fromhex(row.digest)[:16]
        if digest in self._digests:
            return "duplicate"
        if self._near is not None and self._near.seen(row):
            return "near_duplicate"
        self._digests.add(digest)
        return None


class _Near:
    """Signatures of the rows that were kept, and the table of their bands."""

    def __init__(self, threshold: float, seed: int) -> None:
        try:
            from rensa import RMinHash
        except ModuleNotFoundError as error:
            raise ConfigError(
                "dedup.near: needs the package rensa, which is not installed; the extra [data] brings it"
            ) from error
        self._new_hash: Callable[[], Any] = lambda: RMinHash(_HASHES, seed)
        self._threshold = threshold
        self._in_band = next(rows for least, rows in _BANDS if threshold >= least)
        self._signatures = bytearray()
        self._kept = 0
        self._slots = memoryview(mmap.mmap(-1, _SLOTS * 4)).cast("I")

    def seen(self, row: Row) -> bool:
        prompt = _words([message for message in row.prompt if message.get("role") not in ("system", "developer")])
        parts = {"p": prompt, "a": _words([row.answer])}
        if row.rejected is not None:
            parts["r"] = _words([row.rejected])
        if row.correction is not None:
            parts["c"] = _WORD.findall(row.correction.lower())
        all_of_it = self._hashes(gram for part, words in parts.items() for gram in _grams(words, part))
        label = b"\x01" if row.good else b"\x00"
        signature = label + b"".join(_low(self._hashes(_grams(words, part))) for part, words in parts.items())
        slots = list(self._slots_of(all_of_it, label))
        for number in {self._slots[slot] for slot in slots} - {0}:
            if self._alike(signature, number - 1):
                return True
        self._signatures += signature
        self._kept += 1
        for slot in slots:
            self._slots[slot] = self._kept
        return False

    def _hashes(self, grams: Iterable[str]) -> list[int]:
        minimum = self._new_hash()
        remaining = iter(grams)
        while piece := list(islice(remaining, _PIECE)):
            minimum.update(piece)
        hashes: list[int] = minimum.digest()
        return hashes

    def _slots_of(self, hashes: Sequence[int], label: bytes) -> Iterator[int]:
        for start in range(0, _HASHES, self._in_band):
            band = b"".join(value.to_bytes(4, "little") for value in hashes[start : start + self._in_band])
            yield xxhash.xxh3_64_intdigest(label + band, seed=start) % _SLOTS

    def _alike(self, signature: bytes, number: int) -> bool:
        other = self._signatures[number * len(signature) : (number + 1) * len(signature)]
        parts = [slice(start, start + _HASHES) for start in range(1, len(signature), _HASHES)]
        return signature[0] == other[0] and all(
            _similarity(signature[part], other[part]) >= self._threshold for part in parts
        )


_BANDS = ((0.8, 8), (0.5, 4), (0.0, 2))
"""Hashes in a band, from which threshold on: so that a pair at the threshold shares a band with 87% or more."""


def _similarity(one: Sequence[int], other: Sequence[int]) -> float:
    """Estimate the Jaccard similarity from the low bytes of two MinHashes: of different hashes, one in 256 has the
    same (b-bit minwise hashing: Li and König, 2010)."""
    same: float = sum(map(operator.eq, one, other)) / _HASHES
    return (same - 1 / 256) / (1 - 1 / 256)


def _low(hashes: Iterable[int]) -> bytes:
    return bytes(value & 255 for value in hashes)


def _grams(words: Sequence[str], part: str) -> Iterator[str]:
    """The 5-grams of words; a text of fewer is one of its own."""
    for start in range(max(1, len(words) - _GRAM + 1)):
        yield " ".join([part, *words[start : start + _GRAM]])


def _words(messages: Iterable[Message]) -> list[str]:
    return [word for message in messages for text in _texts(message) for word in _WORD.findall(text.lower())]


def _texts(message: Message) -> Iterator[str]:
    content: Any = message.get("content")
    if isinstance(content, str):
        yield content
    else:
        yield from (part["text"] for part in content or () if isinstance(part.get("text"), str))
    calls: Iterable[Mapping[str, Any]] = message.get("tool_calls") or ()
    for call in calls:
        function = call.get("function") or {}
        yield f"{function.get('name')} {function.get('arguments')}"
