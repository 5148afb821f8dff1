"""Server-sent events of one finished body.

Written here because what exists reads a live connection.
"""

from __future__ import annotations

from collections.abc import Iterator


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
