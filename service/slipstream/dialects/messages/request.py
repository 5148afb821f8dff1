"""A request of the Messages API as a request of the chat completions API.

Each field is in one of four groups: it is read by the model and has a word in chat; it is read by the model and has
none (a problem); it is not for the model (left out); or it is not known here, and then it may be for the model, so it
is a problem too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from slipstream.dialects.form import Held
from slipstream.dialects.messages.blocks import kind_of
from slipstream.dialects.messages.findings import Findings
from slipstream.dialects.messages.tools import chat_tool_choice, chat_tools, unknown_reference
from slipstream.dialects.messages.turns import chat_messages

_SAME = ("model", "max_tokens", "temperature", "top_p", "chat_template_kwargs")

_NOT_FOR_THE_MODEL = frozenset({
    "stream", "top_k", "thinking", "cache_control", "service_tier", "speed", "inference_geo", "diagnostics",
    "billing_policy", "fallbacks", "fallback_credit_token", "user_profile_id", "workspace_id", "betas",
    "anthropic_beta", "anthropic_version", "cache_salt", "kv_transfer_params", "ec_transfer_params",
    "context_management",
})  # fmt: skip
"""Fields about how a request is served and billed. `top_k` and `thinking` say how production draws and thinks, not what
it reads. What `context_management` has taken away stands in the answer."""

_READ_WITH_OTHERS = ("system", "tools", "tool_choice", "thread")

_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
"""Levels of effort by the names that every chat server knows."""


def history_of(request: Mapping[str, Any]) -> str | None:
    """The id of the answer from which the provider's copy of the conversation goes on; None if there is no copy."""
    thread = request.get("thread")
    if not isinstance(thread, dict) or thread.get("type") != "continue":
        return None
    before = thread.get("previous_message_id")
    return before if isinstance(before, str) and before else None


def chat_request(request: Mapping[str, Any], earlier: Held | None, found: Findings) -> dict[str, Any]:
    """The request in the chat form. What has no word stands in it as it came, and is in the findings.

    Args:
        earlier: what `history_of` names; None if it was not seen.
    """
    chat: dict[str, Any] = {}
    for field, value in request.items():
        if value is None or field in _NOT_FOR_THE_MODEL or field in _READ_WITH_OTHERS:
            continue
        if field in _SAME:
            chat[field] = value
        elif (rule := _RULES.get(field)) is not None:
            rule(chat, value, found)
        else:
            found.add("unsayable", field)
            chat[field] = value
    _tools(chat, request, found)
    if earlier is not None and earlier.tools:
        chat.setdefault("tools", [*earlier.tools])
    if chat.get("tools"):  # without tools there is nothing to choose, and servers refuse a choice
        chat_tool_choice(chat, request.get("tool_choice"), found)
    messages = chat_messages(request.get("system"), request["messages"], found)
    if history_of(request) is not None:
        if earlier is None:
            found.add("history_unseen", "thread.previous_message_id")
        elif (at := unknown_reference(request["messages"], chat.get("tools") or ())) is not None:
            found.add("history_unseen", at)  # the provider holds the tool, which no model was shown until now
        instructions = 1 if messages and messages[0]["role"] == "system" else 0
        messages[instructions:instructions] = [] if earlier is None else map(dict, earlier.messages)
    if not messages:
        messages.append({"role": "user", "content": ""})
        found.add("unsayable", "messages")
    elif messages[-1]["role"] == "assistant":  # the model is to go on from the middle of an answer
        found.add("unsayable", f"messages[{len(request['messages']) - 1}]" if request["messages"] else "messages")
    return chat | {"messages": messages}


def _messages(chat: dict[str, Any], value: Any, found: Findings) -> None:
    chat["messages"] = []  # its place among the fields


def _stop(chat: dict[str, Any], value: Any, found: Findings) -> None:
    if value:
        chat["stop"] = value


def _metadata(chat: dict[str, Any], value: Any, found: Findings) -> None:
    user = value.get("user_id") if isinstance(value, dict) else None
    if user is not None:
        chat["user"] = user


def _tools(chat: dict[str, Any], request: Mapping[str, Any], found: Findings) -> None:
    tools = request.get("tools")
    if isinstance(tools, list):
        if shown := chat_tools(tools, request["messages"], found):
            chat["tools"] = shown
    elif tools is not None:
        found.add("unsayable", "tools")


def _output_config(chat: dict[str, Any], value: Any, found: Findings) -> None:
    if not isinstance(value, dict):
        found.add("unsayable", "output_config")
        return
    for field, setting in value.items():
        if field == "effort" and isinstance(setting, str) and setting in _EFFORTS:
            chat["reasoning_effort"] = _EFFORTS[setting]
        elif field == "format":
            _output_format(chat, setting, found)
        elif setting is not None:
            found.add("unsayable", f"output_config.{field}")


def _output_format(chat: dict[str, Any], value: Any, found: Findings) -> None:
    if kind_of(value) == "json_schema":
        schema = {"name": "output", "schema": value.get("schema"), "strict": True}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif value is not None:
        found.add("unsayable", "output_config.format")


def _of_the_provider(field: str) -> Callable[[dict[str, Any], Any, Findings], None]:
    def rule(chat: dict[str, Any], value: Any, found: Findings) -> None:
        if value:
            found.add("provider_tool", field)
            chat[field] = value

    return rule


_RULES: dict[str, Callable[[dict[str, Any], Any, Findings], None]] = {
    "messages": _messages,
    "stop_sequences": _stop,
    "metadata": _metadata,
    "output_config": _output_config,
    "output_format": _output_format,
    "mcp_servers": _of_the_provider("mcp_servers"),
    "container": _of_the_provider("container"),
}
