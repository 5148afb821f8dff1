"""Write pieces of a message to a connection: small ones together, in chunks if needed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

_JOINED = 16 * 1024
"""Bytes of a piece that is joined to what is before it: copying so few is cheaper than a list for the kernel."""


def write(transport: asyncio.WriteTransport, head: bytes, pieces: Sequence[bytes]) -> None:
    """Write a head, which may be empty, and pieces as one; a large piece is not copied for it."""
    if not pieces:
        transport.write(head)
    elif len(pieces) == 1 and len(pieces[0]) <= _JOINED:
        transport.write(head + pieces[0])
    else:
        transport.writelines([head, *pieces] if head else pieces)


def chunks(pieces: list[bytes], *, last: bool) -> list[bytes]:
    """Pieces of a body in HTTP/1.1's chunks, each with its frame; small ones in one buffer each."""
    framed: list[bytes] = []
    for piece in pieces:
        if len(piece) <= _JOINED:
            framed.append(b"%x\r\n%b\r\n" % (len(piece), piece))
        else:
            framed += (b"%x\r\n" % len(piece), piece, b"\r\n")
    if last:
        if framed:
            framed[-1] += b"0\r\n\r\n"
        else:
            framed.append(b"0\r\n\r\n")
    return framed
