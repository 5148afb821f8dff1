"""Server-sent events of one finished body, read and written.

Written here because what exists reads a live connection.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def events(body: bytes) -> Iterator[tuple[str, bytes]]:
    """The events of an event stream, as (event name, data), by the WHATWG's rules for interpreting one.

    An event that no blank line ends is left out, as the rules want, except `[DONE]`: some servers close right after.
    """
    name, data = "", list[bytes]()
    for line in body.removeprefix(b"\xef\xbb\xbf").splitlines():  # of bytes: only at CR, LF and CRLF
        if not line:
            if any(data):
                yield name, b"\n".join(data)
            name, data = "", []
            continue
        key, _, value = line.partition(b":")  # a comment has an empty key
        value = value.removeprefix(b" ")
        if key == b"data":
            data.append(value)
        elif key == b"event":
            name = value.decode("utf-8", "replace")
    if data == [b"[DONE]"]:
        yield name, data[0]


def event(data: Any, name: str | None = None) -> bytes:
    """An event with this JSON value. In ASCII: texts hold halves of surrogate pairs, which UTF-8 has no bytes for."""
    text = json.dumps(data, separators=(",", ":")).encode()
    return b"data: %b\n\n" % text if name is None else b"event: %b\ndata: %b\n\n" % (name.encode(), text)
