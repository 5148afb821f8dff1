"""docs/capture.md names what an agent developer may meet."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from slipstream.capture.headers import Problem
from slipstream.dialects.body import Reason

DOCS = (Path(__file__).parents[2] / "docs" / "capture.md").read_text(encoding="utf-8")


def test_every_reason_is_explained() -> None:
    assert [reason for reason in get_args(Reason) if f"| `{reason}` |" not in DOCS] == []


def test_every_header_is_explained() -> None:
    headers = [f"x-slipstream-{problem.replace('_', '-')}" for problem in get_args(Problem)]
    assert [header for header in headers if f"| `{header}` |" not in DOCS] == []
