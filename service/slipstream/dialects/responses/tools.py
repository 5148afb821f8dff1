"""Tools, and the choice among them, in the chat form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slipstream.dialects.form import Problem, Unsayable
from slipstream.dialects.responses.vocabulary import kind_of, problem_of_tool

CUSTOM = "custom"
"""The type of tools whose input is free text. The chat form has a word for them, but no engine of the policy does."""

_FIELDS: Mapping[str, Sequence[str]] = {
    "function": ("name", "description", "parameters", "strict"),
    CUSTOM: ("name", "description", "format"),
}


def chat_tools(tools: Any, problems: list[Unsayable]) -> list[Any]:
    """The tools of a request in the chat form; one that it has no word for stays as it came."""
    if tools is None:
        return []
    if not isinstance(tools, list):
        problems.append(Unsayable("unsayable", "tools"))
        return [tools]
    return [_tool(tool, f"tools[{index}]", problems) for index, tool in enumerate(tools)]


def chat_tool_choice(choice: Any, problems: list[Unsayable]) -> Any:
    """A `tool_choice` in the chat form; one that it has no word for stays as it came."""
    if isinstance(choice, str):
        return choice
    kind = kind_of(choice)
    if kind == "allowed_tools" and isinstance(choice.get("tools"), list):
        allowed = [_named(tool, f"tool_choice.tools[{index}]", problems) for index, tool in enumerate(choice["tools"])]
        return {"type": kind, kind: {"mode": choice.get("mode"), "tools": allowed}}
    return _named(choice, "tool_choice", problems)


def _named(tool: Any, at: str, problems: list[Unsayable]) -> Any:
    """A tool that is named only."""
    kind = kind_of(tool)
    if kind == CUSTOM:
        problems.append(Unsayable("unsayable", at))
    if kind in _FIELDS and isinstance(tool.get("name"), str) and not tool.get("namespace"):
        return {"type": kind, kind: {"name": tool["name"]}}
    if kind in _FIELDS and isinstance(tool.get(kind), Mapping):  # in the chat form already
        return tool
    problems.append(Unsayable(problem_of_tool(tool), at))
    return tool


def _tool(tool: Any, at: str, problems: list[Unsayable]) -> Any:
    kind = kind_of(tool)
    if kind not in _FIELDS:
        problems.append(Unsayable(problem_of_tool(tool), at))
        return tool
    if kind == CUSTOM:
        problems.append(Unsayable("unsayable", at))  # and in the chat form all the same, to be read
    if isinstance(tool.get(kind), Mapping) and "name" not in tool:  # in the chat form already, as some servers take it
        return tool
    if problem := _problem_of_function(tool):
        problems.append(Unsayable(problem, at))
        return tool
    said = {field: tool[field] for field in _FIELDS[kind] if tool.get(field) is not None}
    if kind == CUSTOM and kind_of(said.get("format")) == "grammar":
        grammar = {field: value for field, value in said["format"].items() if field != "type"}
        said["format"] = {"type": "grammar", "grammar": grammar}
    return {"type": kind, kind: said}


def _problem_of_function(tool: Mapping[str, Any]) -> Problem | None:
    callers = tool.get("allowed_callers")
    if tool.get("defer_loading") or (isinstance(callers, list) and callers and "direct" not in callers):
        return "provider_tool"  # it is the provider that shows the tool to the model, or calls it
    if not isinstance(tool.get("name"), str) or tool.get("async") or tool.get("output_schema"):
        return "unsayable"
    return None
