"""HTTP/1.1 read strictly (RFC 9112): what an unambiguous row of messages says, and where it stops being one.

Nothing is repaired here. Where the standard lets a recipient be lenient, leniency is named and lets pass only what no
other reader could read as something else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

Fields = list[tuple[bytes, bytes]]
State = Literal["clean", "partial", "bad"]

_REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~\w]+) +([^\x00-\x20\x7f]+) +(?:HTTP|RTSP|ICE)/(\d\.\d)")
"""Several spaces are one to every reader that takes them at all. The two other protocols are framed as HTTP is,
and llhttp takes them for it."""

_STATUS_LINE = re.compile(rb"HTTP/(\d\.\d) ([1-5]\d\d)(?: ([^\r\n]*))?")
"""The reason is for people, and anything but a line's end."""

_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([\t\x20-\x7e\x80-\xff]*)")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t\x20-\x7e\x80-\xff]*)?")
_BLANK_LINES = re.compile(rb"[\r\n]*")

CONNECTION_ALONE = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authentication-info", b"proxy-authorization"),
        *(b"proxy-connection", b"te", b"trailer", b"upgrade", b"transfer-encoding", b"content-length", b"expect"),
    }
)
"""What an intermediary keeps to itself, or writes anew."""


UNREAD = b"?"
"""The method of a request that could not be read to its end; it may have been a HEAD."""


class Bad(Exception):
    """These bytes are no message, or one that two readers could read differently."""


class Partial(Exception):
    """What has come so far could be the beginning of a message."""


@dataclass
class Message:
    """One message.

    Attributes:
        first: method and target of a request, status and reason of an answer.
        body: without chunk framing.
        kept: the connection goes on after it.
    """

    first: tuple[bytes, bytes]
    version: bytes
    fields: Fields
    body: bytes = b""
    kept: bool = True

    def values(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.fields if key == name]

    @property
    def end_to_end(self) -> Fields:
        """The fields that are not for one connection alone."""
        named = {token.strip().lower() for value in self.values(b"connection") for token in value.split(b",")}
        dropped = (named - {b"host"}) | CONNECTION_ALONE
        return [(name, value) for name, value in self.fields if name not in dropped]


@dataclass
class Row:
    """What was read of one connection.

    Attributes:
        state: `clean` at the end of a message, `partial` within one, `bad` where nobody should read on.
        why: what is bad.
        blank: empty lines stood before a request.
    """

    messages: list[Message] = field(default_factory=list)
    state: State = "clean"
    why: str = ""
    blank: bool = False


def read_requests(data: bytes) -> Row:
    """The requests in the bytes of one connection, up to one that ends it."""
    row, at = Row(), 0
    try:
        while (start := _BLANK_LINES.match(data, at).end()) < len(data):  # type: ignore[union-attr]
            row.blank, at = row.blank or start > at, start
            line, fields, at = _head(data, at)
            if not (match := _REQUEST_LINE.fullmatch(line)):
                raise Bad(f"request line {line[:60]!r}")
            method, target, version = match.groups()
            message = Message((method, target), version, fields)
            if version not in (b"1.0", b"1.1") or method == b"CONNECT":
                raise Bad(f"version {version!r}, method {method!r}")
            message.body, at = _body(data, at, *_framing(message))
            tokens = {token.strip().lower() for value in message.values(b"connection") for token in value.split(b",")}
            # an old client that says both is taken at its first word: what follows is its own in any case
            message.kept = b"keep-alive" in tokens if version == b"1.0" else b"close" not in tokens
            row.messages.append(message)
            if not message.kept:
                return row
    except Partial:
        row.state = "partial"
    except Bad as bad:
        row.state, row.why = "bad", str(bad)
    return row


def read_answers(data: bytes, methods: list[bytes], *, ended: bool) -> Row:
    """The final answers to requests of these methods.

    Args:
        ended: whether the connection was closed after the bytes.
    """
    row, at = Row(), 0
    try:
        while (at := _after_blank_lines(data, at, row)) < len(data):
            line, fields, at = _head(data, at)
            if not (match := _STATUS_LINE.fullmatch(line)):
                raise Bad(f"status line {line[:60]!r}")
            version, status, reason = match.groups()
            message = Message((status, reason or b""), version, fields)
            if status.startswith(b"1"):
                if status == b"101":
                    raise Bad("another protocol")
                continue
            if len(row.messages) == len(methods):
                raise Bad("an answer to no request")
            method, rest = methods[len(row.messages)], data[at:]
            if method == b"HEAD" or (method == UNREAD and ended and not rest) or status in (b"204", b"304"):
                # a request that could not be read has no method: its refusal has a body
                if status >= b"400" and message.values(b"content-length") == [b"%d" % len(rest)]:
                    message.body, at = rest, len(data)
            elif not message.values(b"content-length") and not _ends_in_chunks(message):
                message.body, at, message.kept = rest, len(data), False
                if not ended:
                    raise Partial
            else:
                if message.values(b"transfer-encoding"):  # nobody asked for others, so that they are noise
                    message.fields = [pair for pair in message.fields if pair[0] != b"transfer-encoding"]
                    message.fields.append((b"transfer-encoding", b"chunked"))
                    message.version = b"1.1"  # chunks of an HTTP/1.0 server, whose connection ends behind them
                message.body, at = _body(data, at, *_framing(message))
            row.messages.append(message)
            if not message.kept or b"close" in message.values(b"connection"):
                if at < len(data):
                    raise Bad("bytes behind the last answer")
                return row
    except Partial:
        row.state = "partial"
    except Bad as bad:
        row.state, row.why = "bad", str(bad)
    return row


def _line(data: bytes, at: int) -> tuple[bytes, int]:
    end = data.find(b"\n", at)
    line = data[at:] if end < 0 else data[at:end]
    carriage = line.find(b"\r")
    if end < 0 and carriage in (-1, len(line) - 1):
        raise Partial
    if carriage < 0 or carriage != len(line) - 1 or end < 0:
        raise Bad(f"line end in {line[-60:]!r}")
    return line[:-1], end + 1


def _head(data: bytes, at: int) -> tuple[bytes, Fields, int]:
    first, at = _line(data, at)
    fields, at = _fields(data, at)
    return first, fields, at


def _fields(data: bytes, at: int) -> tuple[Fields, int]:
    fields: Fields = []
    while True:
        line, at = _line(data, at)
        if not line:
            return fields, at
        if not (match := _FIELD.fullmatch(line)):
            raise Bad(f"field {line[:60]!r}")
        fields.append((match[1].lower(), match[2].strip(b" \t")))


def _after_blank_lines(data: bytes, at: int, row: Row) -> int:
    """Those before the first answer, and behind interim ones, are skipped by most readers, and hide nothing."""
    return at if row.messages else _BLANK_LINES.match(data, at).end()  # type: ignore[union-attr]


def _ends_in_chunks(answer: Message) -> bool:
    """Whether chunks are its last coding: an answer in another one ends with its connection."""
    return b",".join(answer.values(b"transfer-encoding")).lower().rpartition(b",")[2].strip(b" \t") == b"chunked"


def _framing(message: Message) -> tuple[bool, int]:
    """Whether the body is chunked, and its length where it is not."""
    codings, lengths = message.values(b"transfer-encoding"), message.values(b"content-length")
    if codings:
        if lengths or message.version != b"1.1" or [coding.lower() for coding in codings] != [b"chunked"]:
            raise Bad(f"transfer-encoding {codings!r} beside content-length {lengths!r}")
        return True, 0
    if not lengths:
        return False, 0
    if len(set(lengths)) > 1 or not re.fullmatch(rb"[0-9]{1,19}", lengths[0]) or int(lengths[0]) >= 2**63:
        raise Bad(f"content-length {lengths!r}")
    return False, int(lengths[0])


def _body(data: bytes, at: int, chunked: bool, length: int) -> tuple[bytes, int]:
    if not chunked:
        if len(data) - at < length:
            raise Partial
        return data[at : at + length], at + length
    body = b""
    while True:
        line, at = _line(data, at)
        if not (match := _CHUNK.fullmatch(line)):
            raise Bad(f"chunk {line[:60]!r}")
        size = int(match[1], 16)
        if not size:
            _, at = _fields(data, at)
            return body, at
        piece, end = data[at : at + size], data[at + size : at + size + 2]
        if not b"\r\n".startswith(end):
            raise Bad(f"chunk followed by {end!r}")
        if len(piece) < size or len(end) < 2:
            raise Partial
        body, at = body + piece, at + size + 2
