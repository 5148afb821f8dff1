"""How request and answer bodies are kept: JSON, compressed.

The format is zlib's. ISA-L writes it three to four times as fast as zlib's fastest level (at its own fastest one, two
thirds of the size instead of half), which is less than the database takes to write what it saves. Packing and
unpacking a long conversation still take a while and the control API shares the event loop, so both are done in
threads, and the tables hold plain bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isal import isal_zlib

from slipstream.jsontext import from_json, to_json

_FASTEST = 0


def pack(body: Mapping[str, Any] | bytes) -> bytes:
    """A JSON object, or its text in UTF-8, compressed."""
    return isal_zlib.compress(body if isinstance(body, bytes) else to_json(body), _FASTEST)


def unpack(packed: bytes) -> dict[str, Any]:
    """The JSON object that was packed."""
    body: dict[str, Any]
    body, _ = from_json(isal_zlib.decompress(packed))
    return body
