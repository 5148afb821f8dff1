"""Tools and the choice among them, as the chat completions API has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slipstream.dialects.form import Problem
from slipstream.dialects.messages.blocks import REFERENCE, kind_of
from slipstream.dialects.messages.findings import Findings

_OF_THE_PROVIDER = ("web_search_", "web_fetch_", "code_execution_", "tool_search_tool_", "mcp_toolset", "advisor_")
"""Beginnings of the types of tools that Anthropic's servers run. All others (`bash_`, `text_editor_`, `computer_`,
`memory_`, ...) the agent runs, but only Anthropic's models know their description and the form of their input."""

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def chat_tools(tools: Sequence[Any], messages: Sequence[Mapping[str, Any]], found: Findings) -> list[Any]:
    """The tools that the model reads: those with `defer_loading` once a result in the messages refers to them."""
    loaded = _loaded(messages)
    return [
        _chat_tool(tool, f"tools[{place}]", found)
        for place, tool in enumerate(tools)
        if not (isinstance(tool, dict) and tool.get("defer_loading")) or tool.get("name") in loaded
    ]


def unknown_reference(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> str | None:
    """The place of the first reference to a tool that is none of these, in the chat form; None if there is none."""
    functions = [tool.get("function") for tool in tools if isinstance(tool, dict)]
    names = [function.get("name") for function in functions if isinstance(function, dict)]
    return next((at for at, name in _references(messages) if name not in names), None)


def _loaded(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The names of the tools that a search by the agent has found."""
    return [name for _, name in _references(messages)]


def _references(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The names of tools that results refer to, with their places."""
    for place, message in enumerate(messages):
        for block, result in enumerate(_blocks(message)):
            if kind_of(result) == "tool_result":
                for part, found in enumerate(_blocks(result)):
                    if kind_of(found) == REFERENCE:
                        yield f"messages[{place}].content[{block}].content[{part}]", found.get("tool_name")


def _blocks(holder: Mapping[str, Any]) -> Sequence[Any]:
    content = holder.get("content")
    return content if isinstance(content, list) else ()


def _chat_tool(tool: Any, at: str, found: Findings) -> Any:
    """The tool as a function of the chat API; the tool itself if it is none."""
    problem = _problem(tool)
    if problem is not None:
        found.add(problem, at)
        return tool
    schema = tool["input_schema"]
    if examples := tool.get("input_examples"):
        schema = schema | {"examples": examples}  # JSON Schema's own word for them
    function = {"name": tool.get("name"), "description": tool.get("description"), "parameters": schema}
    if tool.get("strict") is not None:
        function["strict"] = tool["strict"]
    return {"type": "function", "function": {key: value for key, value in function.items() if value is not None}}


def chat_tool_choice(chat: dict[str, Any], choice: Any, found: Findings) -> None:
    """Write the choice into a chat request with tools."""
    if choice is None:
        return
    kind = kind_of(choice)
    if kind in _CHOICES:
        chat["tool_choice"] = _CHOICES[kind]
    elif kind == "tool":
        chat["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
    else:
        found.add("unsayable", "tool_choice")
        return
    if choice.get("disable_parallel_tool_use"):
        chat["parallel_tool_calls"] = False


def _problem(tool: Any) -> Problem | None:
    kind = kind_of(tool)
    if kind.startswith(_OF_THE_PROVIDER):
        return "provider_tool"
    if kind not in ("", "custom") or not isinstance(tool, dict) or not isinstance(tool.get("input_schema"), dict):
        return "unsayable"
    callers = tool.get("allowed_callers")
    code_only = isinstance(callers, list) and callers and "direct" not in callers  # code that the provider runs
    return "provider_tool" if code_only else None
