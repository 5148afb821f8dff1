"""The form of an answer compared with its request: tool calls by schema, JSON if JSON was asked for.

The faults found here are the `format_error` of `tool_calls` and the substance of `format`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, ClassVar

from slipstream.rewards.calculator import UNIT, Bounds, PlainCalculator
from slipstream.rewards.registry import calculator
from slipstream.rewards.schemas import conforms, no_json_number
from slipstream.rewards.tool_use import offered_tools, parsed
from slipstream.trajectory import PolicyCall, Run

# The marks by which the chat templates of the usual model families (Qwen and Hermes, Llama, Mistral, DeepSeek, GLM)
# write a tool call. In an answer's text they mean that the call was malformed and the server could not read it.
_LEFTOVER = re.compile(
    r"</?tool_calls?>|</?function_calls?>|<function=|<\|python_tag\|>|\[TOOL_CALLS\]|<[|｜]tool[_▁]calls?[_▁]\w+[|｜]>"
)

_JSON_STARTS = re.compile(r"(?:^|```[a-z_+-]*)[ \t]*(?=[{\[])", re.IGNORECASE | re.MULTILINE)
_MOST_VALUES = 100
"""Places that are tried: each may take the time of reading the rest of the text."""

_decoder = json.JSONDecoder()


def tool_faults(call: PolicyCall, tools: Mapping[str, Mapping[str, Any]]) -> int:
    """Count the malformed tool calls of one answer.

    Counted are arguments that are no JSON object, or that break the parameter schema of their tool, and, where tools
    were offered, a call left in the text.
    """
    faults = sum(1 for raw in call.tool_calls if not _well_formed(raw, tools))
    return faults + (1 if tools and left_in_text(call.text, tools) else 0)


def left_in_text(text: str, tools: Mapping[str, Any]) -> bool:
    """Return whether a text holds a tool call: a template's mark, or JSON that names one of the tools."""
    return _LEFTOVER.search(text) is not None or any(_names_tool(value, tools) for value in _json_values(text))


def _json_values(text: str) -> Iterator[Any]:
    """The objects and arrays of JSON at the beginning of a line or of a code fence; none that is within another."""
    end = 0
    for start in islice(_JSON_STARTS.finditer(text), _MOST_VALUES):
        if start.end() < end:
            continue
        try:
            value, end = _decoder.raw_decode(text, start.end())
        except (ValueError, RecursionError):
            continue
        yield value


def _names_tool(value: Any, tools: Mapping[str, Any]) -> bool:
    """Return whether a value is a tool call, or has one in a list, in one of the forms that models write."""
    if isinstance(value, dict):
        value = value.get("tool_calls", value)
    for call in value if isinstance(value, list) else [value]:
        if isinstance(call, dict):
            function = next((call[key] for key in ("function", "function_call", "tool") if key in call), call)
            name = function.get("name") if isinstance(function, dict) else function
            if isinstance(name, str) and name in tools:
                return True
    return False


def _well_formed(raw: Mapping[str, Any], tools: Mapping[str, Mapping[str, Any]]) -> bool:
    call = parsed(raw)
    if call.arguments is None:
        return False
    schema = tools.get(call.name, {}).get("parameters")
    if not isinstance(schema, dict):
        return True
    try:
        return conforms(call.arguments, schema)
    except ValueError:
        return True  # the agent's schema is broken: no fault of the policy's


@calculator("format")
class Format(PlainCalculator):
    """The share of the run's answers that are well formed.

    Well formed is an answer that says something, was not cut off (`finish_reason: length`), has no malformed tool
    call, and keeps to the request's `response_format`.
    """

    bounds: ClassVar[Bounds | None] = UNIT
    interprets: ClassVar[bool] = True

    def calculate(self, run: Run) -> float:
        tools = offered_tools(run)
        good = [
            bool(call.text.strip() or call.tool_calls)
            and call.finish_reason != "length"
            and tool_faults(call, tools) == 0
            and (bool(call.tool_calls) or _keeps_response_format(call))
            for call in run.calls
        ]
        return sum(good) / len(good)


def _keeps_response_format(call: PolicyCall) -> bool:
    wanted = call.request.get("response_format")
    kind = wanted.get("type") if isinstance(wanted, Mapping) else None
    if kind not in ("json_object", "json_schema"):
        return True
    try:
        value = json.loads(call.text, parse_constant=no_json_number)
    except (ValueError, RecursionError):
        return False
    if kind == "json_object":
        return isinstance(value, dict)
    schema = (wanted.get("json_schema") or {}).get("schema") if isinstance(wanted, Mapping) else None
    try:
        return not isinstance(schema, dict) or conforms(value, schema)
    except ValueError:
        return True
