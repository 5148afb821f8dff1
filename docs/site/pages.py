"""The Sphinx extension of this site: what is made at build time, and what differs from GitHub's reading of a page.

- `<!-- made: NAME -->` on a line of its own stands for a piece of reference that is made from the code.
- The pages that a section's index lists are its part of the navigation, in that order.
- A link to a file outside docs/ leads to the repository.
- A state diagram, which GitHub draws by a script of its own, becomes a table.
- Indented lines of a docstring are code, as in Markdown.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

import commands
import http_api
import python_api
from sphinx.application import Sphinx

INDEXES = ("index", "how-to", "reference", "explanation", "adr/README")

MADE: dict[str, Callable[[], str]] = {
    "commands": commands.page,
    "http": http_api.page,
    "python": python_api.page,
}

_MADE = re.compile(r"^<!-- made: (\w+) -->$", re.MULTILINE)
_LISTED = re.compile(r"^(?:- |\| )\[[^\]]+\]\(([\w./-]+)\.md\)", re.MULTILINE)
"""An item of a list, or a row of a table, that begins with a link to a page."""

_OUTSIDE = re.compile(r"\]\((\.\./[^)#]+)((?:#[^)]*)?)\)")
_DIAGRAM = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ARROW = re.compile(r"^ *(\S+) --> (\S+)$", re.MULTILINE)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("repository", "", "env", str)
    app.connect("source-read", _read)
    app.connect("autodoc-process-docstring", _mark_code, priority=400)  # before napoleon, which reads sections
    return {"parallel_read_safe": True}


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    text = _MADE.sub(lambda found: MADE[found[1]](), source[0])
    text = _DIAGRAM.sub(lambda found: _moves(found[1]), text)
    text = _OUTSIDE.sub(lambda found: _to_repository(app, name, found), text)
    if name in INDEXES:
        pages = "\n".join(dict.fromkeys(_LISTED.findall(text)))
        text += f"\n\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"
    source[0] = text


def _to_repository(app: Sphinx, name: str, found: re.Match[str]) -> str:
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(name), found[1]))
    inside = path.startswith("docs/")
    return found[0] if inside else f"]({app.config.repository}/{path}{found[2]})"


def _moves(diagram: str) -> str:
    following: dict[str, list[str]] = {}
    for state, after in _ARROW.findall(diagram):
        following.setdefault(state, []).append("the end" if after == "[*]" else f"`{after}`")
    begins = " or ".join(following.pop("[*]"))
    rows = (f"| `{state}` | {', '.join(after)} |" for state, after in following.items())
    return "\n".join([f"Begins as {begins}.\n", "| from | to |", "|---|---|", *rows])


def _mark_code(app: Sphinx, kind: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Put `::` before each indented paragraph that follows a paragraph of text."""
    marked: list[str] = []
    above = " "  # the last line of text
    for line in lines:
        if line.startswith("    ") and marked and not marked[-1] and not above.startswith(" "):
            marked += ["::", ""]
        marked.append(line)
        above = line or above
    lines[:] = marked
