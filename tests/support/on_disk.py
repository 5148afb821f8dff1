"""What is on the disk of a SQLite store, past SQLite: pages that are free, and its log, hold bytes too."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from pathlib import Path

_ZLIB_HEADERS = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


def on_disk(folder: Path) -> bytes:
    """The bytes of all files of the store in this folder."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("slipstream.db*")))


def holds(folder: Path, marker: str) -> bool:
    """Whether this text is anywhere in the store's files: as it is, or in a body that was packed and lies in one
    piece."""
    stored, text = on_disk(folder), marker.encode()
    return text in stored or any(text in body for body in unpacked(stored))


def unpacked(stored: bytes) -> Iterator[bytes]:
    """Whatever in these bytes is a packed body, or the beginning of one."""
    for header in _ZLIB_HEADERS:
        at = stored.find(header)
        while at >= 0:
            with contextlib.suppress(zlib.error):
                yield zlib.decompressobj().decompress(stored[at : at + 65536])
            at = stored.find(header, at + 1)
