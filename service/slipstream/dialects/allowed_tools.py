"""A choice among some of a request's functions (`allowed_tools`), which no engine knows, as those functions alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KIND = "allowed_tools"
"""The type of such a choice in the chat form."""

_MODES = ("auto", "required")


def narrowed(request: Mapping[str, Any]) -> dict[str, Any] | None:
    """The request with the tools that its choice allows, and the mode as its choice.

    Args:
        request: in the chat form, with a choice of this type.

    Returns:
        None where the choice names anything else than functions of the request.
    """
    choice, tools = request["tool_choice"].get(KIND), request.get("tools")
    if not isinstance(choice, Mapping) or not isinstance(tools, list) or choice.get("mode") not in _MODES:
        return None
    allowed = choice.get("tools")
    names = [_name(tool) for tool in allowed] if isinstance(allowed, list) else []
    kept = [tool for tool in tools if (name := _name(tool)) is not None and name in names]
    if not names or {_name(tool) for tool in kept} != {*names}:
        return None
    return {**request, "tools": kept, "tool_choice": choice["mode"]}


def is_among_some(choice: Any) -> bool:
    """Return whether a `tool_choice` of the chat form is of this type."""
    return isinstance(choice, Mapping) and choice.get("type") == KIND


def _name(tool: Any) -> str | None:
    """The name of a function; None for any other tool."""
    function = tool.get("function") if isinstance(tool, Mapping) and tool.get("type") == "function" else None
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else None
