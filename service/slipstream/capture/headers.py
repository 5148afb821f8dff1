"""Headers `x-slipstream-...`, in which an agent can say more about a call.

A header that cannot be used is left out and named in `problems`: production must not fail because of a label.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from slipstream.dialects.body import Unreadable, header_value, parse_json
from slipstream.http.headers import Headers
from slipstream.proxy.consent import may_capture

_OWN = (b"session-id", b"task-id", b"mark", b"metadata", b"select", b"capture")
NAMES = frozenset(b"x-slipstream-" + name for name in _OWN)

MAX_NAME = 64
"""Characters of a session id, task id or label: what Trinity's task_id column holds."""

Problem = Literal["session_id", "task_id", "mark", "metadata", "select"]
"""Headers that could not be used; the values are metric labels."""


@dataclass(frozen=True, slots=True)
class SlipstreamHeaders:
    """The usable part of a call's `x-slipstream-...` headers.

    Attributes:
        mark: the labels of `x-slipstream-mark`, each once, in the order given; empty where the call is not marked.
        never: the call is not to be captured. The tap has not let it through; here it is asked once more.
        problems: the headers that were left out, wholly or in part.
    """

    session_id: str | None = None
    task_id: str | None = None
    mark: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    never: bool = False
    problems: tuple[Problem, ...] = ()


SILENT = SlipstreamHeaders()
"""Headers of a request that has none of ours."""


def read_headers(headers: Headers) -> SlipstreamHeaders:
    """Read the `x-slipstream-...` headers of a request; never raises."""
    problems: list[Problem] = []

    def name(header: bytes, problem: Problem) -> str | None:
        value = _text(header_value(headers, header))
        if not value or _is_name(value):
            return value or None
        problems.append(problem)
        return None

    session_id = name(b"x-slipstream-session-id", "session_id")
    task_id = name(b"x-slipstream-task-id", "task_id")

    given = [value for key, value in headers if key.lower() == b"x-slipstream-mark"]
    labels = [label.strip() for label in _text(b",".join(given)).split(",") if label.strip()]
    mark = tuple(dict.fromkeys(label for label in labels if _is_name(label)))
    if not all(map(_is_name, labels)):
        problems.append("mark")

    metadata: Any = {}
    if raw := header_value(headers, b"x-slipstream-metadata"):
        try:
            metadata = parse_json(_text(raw))
            # half of a surrogate pair can be read, but not be given back by GET /tasks
            json.dumps(metadata, ensure_ascii=False).encode()
        except (Unreadable, ValueError):
            metadata = None
        if not isinstance(metadata, dict):
            metadata = {}
            problems.append("metadata")

    select = header_value(headers, b"x-slipstream-select").lower()
    if select not in (b"", b"never"):
        problems.append("select")
    return SlipstreamHeaders(session_id, task_id, mark, metadata, not may_capture(headers), tuple(problems))


def _text(value: bytes) -> str:
    """HTTP says latin-1, programs send UTF-8: whatever is valid UTF-8 is hardly ever meant as latin-1."""
    try:
        return value.decode("utf-8").strip()
    except UnicodeDecodeError:
        return value.decode("latin-1").strip()


def _is_name(value: str) -> bool:
    return len(value) <= MAX_NAME and value.isprintable()
