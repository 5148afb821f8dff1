"""Answers of webhooks and judges, read within a limit: they are not trusted to answer well."""

from __future__ import annotations

import httpx

from slipstream.http.encodings import Undecodable, decoded


async def whole(response: httpx.Response, most: int) -> bytes:
    """The body of a streamed answer, of at most so many bytes, as sent and decompressed. httpx would decompress each
    piece to its end before it shows any of it, and 500 bytes of Brotli can be 300 MB.

    Raises:
        Undecodable: `too_large`, or `encoding` for one that is unknown or broken.
    """
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > most:
            raise Undecodable("too_large")
    return decoded(bytes(body), response.headers.get("content-encoding", "").encode(), most)
