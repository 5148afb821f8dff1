"""How request and answer bodies are kept: JSON, compressed.

Chat bodies repeat themselves (each call of a task carries the ones before), so that even zlib's fastest level takes
them to a fraction; the standard library is enough here. Packing and unpacking take milliseconds for a long
conversation and production shares the event loop, so both are done in threads, and the tables hold plain bytes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

_FASTEST = 1


def pack(body: Mapping[str, Any]) -> bytes:
    """A JSON object as zlib-compressed UTF-8."""
    # surrogatepass: JSON may carry lone surrogates (\ud800), and what came in must be kept as it was
    return zlib.compress(json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass"), _FASTEST)


def unpack(packed: bytes) -> dict[str, Any]:
    """The JSON object that was packed."""
    body: dict[str, Any] = json.loads(zlib.decompress(packed).decode("utf-8", "surrogatepass"))
    return body
