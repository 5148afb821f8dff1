"""How request and answer bodies are kept: JSON, compressed.

Chat bodies repeat themselves (each call of a task carries the ones before), so that even zlib's fastest level takes
them to a fraction; the standard library is enough here.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from sqlalchemy import LargeBinary
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

_FASTEST = 1


class CompressedJson(TypeDecorator[dict[str, Any]]):
    """A column that holds a JSON object as zlib-compressed UTF-8."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: dict[str, Any] | None, dialect: Dialect) -> bytes | None:
        if value is None:
            return None
        # surrogatepass: JSON may carry lone surrogates (\ud800), and what came in must be kept as it was
        return zlib.compress(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"), _FASTEST)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> dict[str, Any] | None:
        if value is None:
            return None
        body: dict[str, Any] = json.loads(zlib.decompress(value).decode("utf-8", "surrogatepass"))
        return body
