"""Types of items, content parts and tools that the chat form has no word for, each with the problem that it makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipstream.dialects.form import Problem

TEXT_PARTS = frozenset({"input_text", "output_text", "text"})
"""Types of content parts that are nothing but text."""

_ITEMS: Mapping[str, Problem] = {
    "code_interpreter_call": "provider_tool",
    "file_search_call": "provider_tool",
    "image_generation_call": "provider_tool",
    "mcp_approval_request": "provider_tool",
    "mcp_approval_response": "provider_tool",
    "mcp_call": "provider_tool",
    "mcp_list_tools": "provider_tool",
    "program": "provider_tool",
    "program_output": "provider_tool",
    "web_search_call": "provider_tool",
    "compaction": "history_unseen",  # what was said until then, encrypted for the provider
    "item_reference": "history_unseen",
    "computer_call_output": "media",
}

_TOOLS: Mapping[str, Problem] = {
    "code_interpreter": "provider_tool",
    "file_search": "provider_tool",
    "image_generation": "provider_tool",
    "mcp": "provider_tool",
    "programmatic_tool_calling": "provider_tool",
}

_MEDIA = ("audio", "file", "image", "screenshot", "video")
"""One of these is in the type of each part that is not text."""


def kind_of(value: Any) -> str:
    """The type of an item, a content part or a tool, which messages and references may leave out; "" for none."""
    if not isinstance(value, Mapping):
        return ""
    kind = value.get("type")
    if isinstance(kind, str):
        return kind
    if kind is None and "role" in value:
        return "message"
    return "item_reference" if kind is None and "id" in value else ""


def problem_of_item(item: Any) -> Problem:
    """The problem of an item that is neither a message, nor a call of a tool of the agent's, nor what came of one."""
    kind = kind_of(item)
    if kind in ("tool_search_call", "tool_search_output") and item.get("execution") != "client":
        return "provider_tool"
    return _ITEMS.get(kind, "unsayable")


def problem_of_tool(tool: Any) -> Problem:
    """The problem of a tool that is neither a function nor a custom tool, or of a choice of one."""
    kind = kind_of(tool)
    if kind.startswith("web_search"):  # some have a date behind it
        return "provider_tool"
    if kind == "tool_search" and tool.get("execution") != "client":
        return "provider_tool"
    if kind == "shell" and kind_of(tool.get("environment")).startswith("container"):
        return "provider_tool"
    return _TOOLS.get(kind, "unsayable")


def problem_of_part(part: Any) -> Problem:
    """The problem of a content part that is not text."""
    return "media" if any(word in kind_of(part) for word in _MEDIA) else "unsayable"
