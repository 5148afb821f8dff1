"""The page cannot rot: each span and each attribute is in it, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from slipstream.tracing.catalogue import Attribute, SpanName

PAGE = (Path(__file__).parents[2] / "docs" / "tracing.md").read_text(encoding="utf-8")


def rows(section: str) -> list[str]:
    [text] = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(r"^\| `([^`]+)`", text, re.MULTILINE)


def test_the_page_has_each_span_and_attribute_and_no_other() -> None:
    assert {row.removesuffix(" {model}") for row in rows("Spans")} == set(SpanName)
    assert rows("Attributes") == list(Attribute)
