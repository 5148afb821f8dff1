"""Messages of a conversation for a terminal, whatever is in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from slipstream.terminal.cut import Cut
from slipstream.terminal.inert import inert, json_text

_STYLES = {"system": "magenta", "developer": "magenta", "user": "cyan", "assistant": "green", "tool": "yellow"}

_ROLE = 12
"""Characters of a role."""

_NAMED = ("role", "content", "tool_calls", "tool_call_id", "name")
"""Fields of a message that are shown in a place of their own."""

Message = Mapping[str, Any]


def conversation(messages: Sequence[Any], cut: Cut) -> RenderableType:
    """The messages below each other: the role on the left, and what it said."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(overflow="fold")  # a word that is longer than a line goes on in the next one
    for message in _some(messages, cut.messages):
        if isinstance(message, int):
            grid.add_row("", Text(f"… {message:,} messages; --full shows them", style="dim"))
            continue
        role = inert(message.get("role"), _ROLE) if isinstance(message, Mapping) else "?"
        grid.add_row(Text(role, style=_STYLES.get(role, "")), said(message, cut))
    return grid


def said(message: Any, cut: Cut) -> Text:
    """Return all that a message says: text, other contents by their kind and size, tool calls, and fields of others."""
    if not isinstance(message, Mapping):
        return Text(inert(json_text(message), cut.text))
    parts = [*_contents(message.get("content"), cut), *_calls(message.get("tool_calls"), cut)]
    for field, value in message.items():
        if field not in _NAMED and value not in (None, "", [], {}):
            text = value if isinstance(value, str) else json_text(value)
            parts.append(Text(f"[{inert(field, cut.line)}] {inert(text, cut.text, lines=True)}", style="dim"))
    return Text("\n").join(parts) if parts else Text("nothing", style="dim")


def _some(messages: Sequence[Any], most: int | None) -> Iterable[Any]:
    """All messages, or the first and the last ones and between them the number of those that are left out."""
    if most is None or len(messages) <= most:
        return messages
    return [messages[0], len(messages) - most, *messages[len(messages) - most + 1 :]]


def _contents(content: Any, cut: Cut) -> Iterable[Text]:
    for part in content if isinstance(content, list) else [content]:
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str):
            if text:
                yield Text(inert(text, cut.text, lines=True))
        elif part is not None:
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            yield Text(f"[{inert(kind, cut.line)} of {len(json_text(part)):,} characters]", style="dim")


def _calls(calls: Any, cut: Cut) -> Iterable[Text]:
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            yield Text(f"→ {inert(json_text(call), cut.text)}", style="bold")
            continue
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else json_text(arguments)
        name = inert(function.get("name"), cut.line)
        yield Text.assemble((f"→ {name}", "bold"), f"({inert(text, cut.text)})")
