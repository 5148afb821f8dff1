"""Images, sound and files within a JSON value: what is kept of them is a reference."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

SIGNS = (r"(?i:;base64,)[A-Za-z0-9+/_-]{64}", r'"(?:data|file_data|result|b64_json)"\s*:\s*"[A-Za-z0-9+/_-]{64}')
"""Patterns, as `Suspects` takes them, of JSON in which bytes may be in base64."""

_FIELDS = frozenset({"data", "file_data", "result", "b64_json"})
"""Fields whose text is base64 alone: of sound, documents and images, in the dialects that are known."""

_NAMES = (b";base64,", *(f'"{field}"'.encode() for field in sorted(_FIELDS)))

_SHORTEST = 512
"""Characters; a shorter text is no picture, and stays."""

_URL = re.compile(r"data:([\w.+-]*/?[\w.+-]*)[^,]{0,256};base64,([A-Za-z0-9+/_=-]*)")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")


def may_hold_media(text: bytes) -> bool:
    """Return whether a JSON text has any of the fields in which a file may be; takes a part of the time of reading."""
    return any(sign in text for sign in _NAMES)


def without_media(value: Any) -> Any:
    """A copy of a JSON value with a reference in the place of each file in base64; the value itself where it has none.

    A reference is `media:TYPE;sha256=HEX;characters=N`, of the base64 as it was: two that are equal are one file.
    """
    root, changed = [value], False
    pending: list[Any] = [root]
    while pending:  # no recursion: a caller decides how deep its JSON is
        node = pending.pop()
        items: Iterable[tuple[Any, Any]] = node.items() if isinstance(node, dict) else enumerate(node)
        for key, child in items:
            if isinstance(child, str):
                if len(child) >= _SHORTEST and (reference := _reference(key, child)) is not None:
                    node[key] = reference
                    changed = True
            elif isinstance(child, dict | list):
                node[key] = child.copy()
                pending.append(node[key])
    return root[0] if changed else value


def _reference(field: Any, text: str) -> str | None:
    if (url := _URL.fullmatch(text)) is not None:
        kind, content = url.groups()
    elif field in _FIELDS and _BASE64.fullmatch(text):
        kind, content = "", text
    else:
        return None
    digest = hashlib.sha256(content.encode()).hexdigest()
    return f"media:{kind};sha256={digest};characters={len(content)}"
