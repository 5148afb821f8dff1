"""Content blocks: their text, the reasons why the chat form has no word for some, and the input of a tool call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from slipstream.dialects.body import Unreadable, parse_json
from slipstream.dialects.form import Problem

SILENT = frozenset({"thinking", "redacted_thinking", "fallback"})
"""Types of blocks that are not in the chat form. Agents of the chat API send no thoughts back, and those of another
model, in part encrypted, are nothing that the policy would have thought; `fallback` says which model went on."""

_MEDIA = frozenset({"image", "document", "audio", "video"})

_PROVIDER = frozenset({"server_tool_use", "mcp_tool_use", "mcp_tool_listing", "container_upload"})

REFERENCE = "tool_reference"
"""The type of a block by which a search for tools gives the model one of those with `defer_loading` to read."""

_INVALID = "INVALID_JSON"
"""The key under which a tool's input has the text that is no JSON object, as the API's documentation wants it."""


def kind_of(block: Any) -> str:
    """The type of a block; "" if it has none."""
    kind = block.get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) else ""


def text_of(block: Any) -> str | None:
    """The text that a block gives the model to read; None if there is more to it than text."""
    kind = kind_of(block)
    if kind == "text":
        text = block.get("text")
        return text if isinstance(text, str) else None
    if kind == REFERENCE:
        name = block.get("tool_name")
        return name if isinstance(name, str) else None
    if kind == "document" and not _is_cited(block):
        return _labelled(block.get("title"), block.get("context"), _text_of_source(block.get("source")))
    if kind == "search_result" and not _is_cited(block):
        return _labelled(block.get("title"), block.get("source"), _text_of_all(block.get("content")))
    return None


def problem_of(block: Any) -> Problem:
    """The reason why the chat form has no word for a block, which has no text and calls or answers no tool."""
    kind = kind_of(block)
    if kind == "document" and _text_of_source(block.get("source")) is not None:
        return "unsayable"  # its answer has citations
    if kind in _MEDIA:
        return "media"
    if kind in _PROVIDER or kind.endswith("_tool_result"):
        return "provider_tool"
    return "unsayable"


def arguments_of(tool_input: Any) -> str:
    """The arguments of a chat's tool call, with blanks as Python's and most models' JSON has them."""
    if isinstance(tool_input, dict) and len(tool_input) == 1 and isinstance(text := tool_input.get(_INVALID), str):
        return text
    return json.dumps({} if tool_input is None else tool_input, ensure_ascii=False)


def input_of(arguments: Any) -> dict[str, Any]:
    """The input of a tool call, which must be an object: what is none is kept as text, and `arguments_of` gives it
    back as it was."""
    if isinstance(arguments, dict):
        return arguments
    text = arguments if isinstance(arguments, str) else ""
    if not text.strip():
        return {}
    try:
        value = parse_json(text)
    except Unreadable:
        value = None
    return value if isinstance(value, dict) else {_INVALID: text}


def _is_cited(block: dict[str, Any]) -> bool:
    citations = block.get("citations")
    return isinstance(citations, dict) and bool(citations.get("enabled"))


def _text_of_source(source: Any) -> str | None:
    """The text of a document; None if it is a file or has images."""
    if kind_of(source) == "text":
        data = source.get("data")
        return data if isinstance(data, str) else None
    return _text_of_all(source.get("content")) if kind_of(source) == "content" else None


def _text_of_all(content: Any) -> str | None:
    """The joined text of content that is nothing but text; None if it is not."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return None
    texts = [block["text"] for block in content if kind_of(block) == "text" and isinstance(block.get("text"), str)]
    return "\n".join(texts) if len(texts) == len(content) else None


def _labelled(title: Any, label: Any, text: str | None) -> str | None:
    if text is None:
        return None
    return "\n".join([each for each in (title, label) if isinstance(each, str) and each] + [text])
