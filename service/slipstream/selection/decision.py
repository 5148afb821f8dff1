"""The decision of a strategy about a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision on whether a task is trained on, and why.

    Attributes:
        reason: a short stable name, such as `sampling` or `no_mark`; reasons are counted, so there must be few.
        labels, metadata: what the strategies that selected the task say of it; added to what it carries already.
    """

    selected: bool
    reason: str
    labels: frozenset[str] = frozenset()
    metadata: Mapping[str, Any] = field(default_factory=dict)
