"""Write docs/states.md from the table of transitions: `python tests/support/state_page.py`."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

from slipstream.store import states

PAGE = Path(__file__).parents[2] / "docs" / "states.md"

_HEAD = """# States

What is in the store has a state, a word that `GET /status` counts and `GET /tasks/{task_id}` shows. The table of the
changes that there are is `TRANSITIONS` in `service/slipstream/store/states.py`; every change goes through `move`, which
refuses any other. This page is made from that table.
"""


def kinds() -> list[type[StrEnum]]:
    return list(states.TRANSITIONS)


def page() -> str:
    return "\n".join([_HEAD, *(section for kind in kinds() for section in _section(kind))])


def _section(kind: type[StrEnum]) -> Iterator[str]:
    words = re.findall(r"[A-Z][a-z]+", kind.__name__.removesuffix("State"))
    yield f"## {' '.join(words).capitalize()}\n"
    yield f"{inspect.getdoc(kind)}\n"
    yield "```mermaid\nstateDiagram-v2"
    yield f"    [*] --> {next(iter(kind))}"
    for state, following in states.TRANSITIONS[kind].items():
        yield from (f"    {state} --> {after}" for after in kind if after in following)
        if not following:
            yield f"    {state} --> [*]"
    yield "```\n"
    if meanings := dict(_meanings(kind)):
        yield "| state | meaning |\n|---|---|"
        yield from (f"| `{state}` | {meaning} |" for state, meaning in meanings.items())
        yield ""


def _meanings(kind: type[StrEnum]) -> Iterator[tuple[str, str]]:
    """The states that have a docstring, with it."""
    [body] = [node.body for node in ast.parse(inspect.getsource(kind)).body if isinstance(node, ast.ClassDef)]
    for statement, after in pairwise(body):
        match statement, after:
            case ast.Assign(value=ast.Constant(value=str(state))), ast.Expr(value=ast.Constant(value=str(meaning))):
                yield state, " ".join(meaning.split())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
