"""Records of a file: the lines of a JSONL file, or the elements of a JSON document.

The file is mapped into memory, and a record is read when it is asked for: a file may be larger than the memory.
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from slipstream.datasets.imports.conversation import Unfit
from slipstream.dialects.body import Unreadable, read_json
from slipstream.errors import SlipstreamError

MOST_BYTES = 16 * 1024**2
"""Limit of one record: a conversation that fits into a request to a sidecar is far smaller, and a batch of spans may
have hundreds of them."""

_LISTS = (b'"data"', b'"observations"', b'"spans"', b'"resourceSpans"', b'"resourceLogs"')
"""Fields of a document under which its records stand: a page of an API, a downloaded trace, a batch of spans."""

_BOM = b"\xef\xbb\xbf"

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[][{}"]', re.DOTALL)
"""A string of JSON, or a bracket. A quotation mark alone begins a string that does not end."""

_BLANKS = re.compile(rb"\s*+")

_any = msgspec.json.Decoder(msgspec.Raw).decode

_REASONS = {
    "not_json": "expected JSON, found none",
    "too_large": "expected at most 100 levels, found more",
    "too_many_values": "expected at most 500000 values, found more",
}


class ImportFileError(SlipstreamError):
    """A file cannot be read at all; names the file."""


class Extent(NamedTuple):
    """Place of a record in its file: its line, counted from 1, and its bytes."""

    line: int
    begin: int
    end: int


class RecordFile:
    """A file that is open for reading. Use `open_records`.

    Args:
        data: its bytes.
    """

    def __init__(self, name: str, data: mmap.mmap | bytes) -> None:
        self.name = name
        self._data = data

    def extents(self) -> Iterator[Extent]:
        """Yield the places of its records, in order, blank lines left out.

        Raises:
            ImportFileError: it is one document, and its brackets or strings do not end.
        """
        data = self._data
        begin = len(_BOM) if data[: len(_BOM)] == _BOM else 0
        first = _after_blanks(data, begin)
        if first == len(data):
            return
        if self._is_document(first):
            yield from self._of_document(first)
            return
        line = 1
        while begin < len(data):
            end = data.find(b"\n", begin)
            end = len(data) if end < 0 else end
            if _after_blanks(data, begin, end) < end:
                yield Extent(line, begin, end)
            begin, line = end + 1, line + 1

    def read(self, extent: Extent) -> dict[str, Any]:
        """Return the record at a place.

        Raises:
            Unfit: it is too long, no UTF-8, no JSON, nested too deep, or no object.
        """
        size = extent.end - extent.begin
        if size > MOST_BYTES:
            raise Unfit("", f"expected at most {MOST_BYTES} bytes, found {size}")
        text = self._data[extent.begin : extent.end]
        try:
            text.decode()
        except UnicodeDecodeError as error:
            raise Unfit("", f"expected UTF-8, found another byte at character {error.start + 1}") from None
        try:
            value, plain = read_json(text)
            if not plain:
                json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise Unfit("", "expected text in valid Unicode, found half of a surrogate pair") from None
        except Unreadable as error:
            raise Unfit("", _REASONS.get(error.reason, error.reason)) from None
        if not isinstance(value, dict):
            raise Unfit("", f"expected a JSON object, found {type(value).__name__}")
        return value

    def _is_document(self, first: int) -> bool:
        """Return whether it is one list, or one object over several lines or with a list of records, and not a value a
        line."""
        data = self._data
        begins = data[first : first + 1]
        if begins not in (b"[", b"{"):
            return False
        end = data.find(b"\n", first)
        alone = end < 0 or _after_blanks(data, end) == len(data)
        end = len(data) if end < 0 else end
        if end - first > MOST_BYTES:
            return alone or begins == b"["
        line = data[first:end]
        try:
            _any(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            # it goes on in the next line, or is broken: then what says so names the line of a file of lines
            return begins == b"[" or line.rstrip().endswith((b"{", b"[", b","))
        return alone

    def _of_document(self, first: int) -> Iterator[Extent]:
        data = self._data
        within = 1 if data[first : first + 1] == b"[" else 2
        depth, begin, seen, line = 0, first, 0, 1
        listed, last, any_list = within == 1, b"", False
        for token in _TOKEN.finditer(data, first):
            at = token.start()
            kind = data[at : at + 1]
            if kind == b'"':
                if token.end() - at == 1:
                    break
                last = token.group() if depth == 1 and token.end() - at <= 32 else b""
            elif kind in b"{[":
                if depth == 1 and within == 2:
                    listed = kind == b"[" and last in _LISTS
                    any_list = any_list or listed
                if depth == within and listed and kind == b"{":
                    begin = at
                depth += 1
            else:
                depth -= 1
                if depth == within and listed and kind == b"}":
                    line += data[seen:begin].count(b"\n")
                    seen = begin
                    yield Extent(line, begin, token.end())
                if depth == 0:
                    if within == 2 and not any_list:
                        yield Extent(1 + data[:first].count(b"\n"), first, token.end())
                    if _after_blanks(data, token.end()) != len(data):
                        raise ImportFileError(f"{self.name}: expected one JSON document, found more after its end")
                    return
        raise ImportFileError(f"{self.name}: expected a JSON document, found one that does not end")


@contextmanager
def open_records(path: Path) -> Iterator[RecordFile]:
    """Open a file of records.

    Raises:
        ImportFileError: it cannot be read.
    """
    try:
        if path.exists() and not path.is_file():
            raise ImportFileError(f"{path}: expected a file")
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                yield RecordFile(path.name, b"")
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                yield RecordFile(path.name, data)
    except OSError as error:
        raise ImportFileError(f"{path}: expected a file that can be read; {error.strerror}") from error


def _after_blanks(data: mmap.mmap | bytes, at: int, end: int | None = None) -> int:
    """Return the place of the first character from here on that is no blank; the end if there is none."""
    match = _BLANKS.match(data, at, len(data) if end is None else end)
    return at if match is None else match.end()
