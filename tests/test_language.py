"""The language of the code, as far as a test can hold it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

# A docstring begins with what the thing is or does, in words that a search would find, not with a question.
QUESTION = re.compile(r"(What|Whether|How|Where|Of|Who|Whose|When|Which|Why)\b")


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring, those of attributes and constants included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text.strip()


def test_no_docstring_begins_like_a_question() -> None:
    files = [file for folder in ("service", "client", "examples") for file in sorted((ROOT / folder).rglob("*.py"))]
    assert len(files) > 300
    found = [
        f"{file.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for file in files
        for line, text in docstrings(file)
        if text and QUESTION.match(text)
    ]
    assert not found, "begin with an imperative or a noun phrase:\n" + "\n".join(found)
