"""The form of an answer compared with its request: tool calls by schema, JSON if JSON was asked for.

The faults found here are the `format_error` of `tool_calls` and the substance of `format`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from slipstream.rewards.calculator import PlainCalculator
from slipstream.rewards.registry import calculator
from slipstream.rewards.schemas import conforms, no_json_number
from slipstream.rewards.tool_use import offered_tools, parsed
from slipstream.trajectory import PolicyCall, Run

# The marks by which the chat templates of the usual model families (Qwen and Hermes, Llama, Mistral, DeepSeek, GLM)
# write a tool call. In an answer's text they mean that the call was malformed and the server could not read it.
_LEFTOVER = re.compile(
    r"</?tool_calls?>|</?function_calls?>|<function=|<\|python_tag\|>|\[TOOL_CALLS\]|<[|｜]tool[_▁]calls?[_▁]\w+[|｜]>"
)


def tool_faults(call: PolicyCall, tools: Mapping[str, Mapping[str, Any]]) -> int:
    """Count the malformed tool calls of one answer.

    Counted are arguments that are no JSON object, or that break the parameter schema of their tool, and, where tools
    were offered, a call left in the text.
    """
    faults = sum(1 for raw in call.tool_calls if not _well_formed(raw, tools))
    return faults + (1 if tools and left_in_text(call.text, tools) else 0)


def left_in_text(text: str, tools: Mapping[str, Any]) -> bool:
    """Return whether a text holds a tool call: a template's mark, or a JSON object that names one of the tools."""
    if _LEFTOVER.search(text):
        return True
    try:
        value = json.loads(text.strip().removeprefix("```json").removeprefix("```").removesuffix("```"))
    except (ValueError, RecursionError):
        return False
    function = value.get("function", value) if isinstance(value, dict) else None
    name = function.get("name") if isinstance(function, dict) else function
    return isinstance(name, str) and name in tools


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
