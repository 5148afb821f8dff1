"""A request in the chat form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipstream.dialects.allowed_tools import is_among_some, narrowed
from slipstream.dialects.form import Held, Unsayable
from slipstream.dialects.responses.messages import messages_of
from slipstream.dialects.responses.tools import chat_tool_choice, chat_tools
from slipstream.dialects.responses.vocabulary import kind_of
from slipstream.trajectory import Message

_TRANSLATED = frozenset({
    "conversation", "include", "input", "instructions", "max_output_tokens", "previous_response_id", "prompt",
    "reasoning", "text", "tool_choice", "tools", "top_logprobs",
})  # fmt: skip
_DROPPED = frozenset({
    "access_programs", "background", "context_management", "image", "max_tool_calls", "stream", "stream_options",
    "truncation",
    "client_metadata",  # of Codex, about itself
    "messages",  # no field of this dialect
})  # fmt: skip
"""Fields that the chat form has no word for, and that change nothing of what the model reads in this call."""

_LOGPROBS = "message.output_text.logprobs"


def is_request(request: Mapping[str, Any]) -> bool:
    """Return whether there is something to answer: input, or what the provider holds."""
    asked = request.get("input")
    if isinstance(asked, list):
        return not set(map(type, asked)) - {dict} and bool(asked or _held(request))
    return isinstance(asked, str) or (asked is None and _held(request))


def history(request: Mapping[str, Any]) -> str | None:
    """The id of the response, else of the conversation, that the request goes on from."""
    before = request.get("previous_response_id")
    return before if isinstance(before, str) and before else conversation_of(request)


def conversation_of(request: Mapping[str, Any]) -> str | None:
    """The id of the conversation, held by the provider, to which the request and its answer are added."""
    conversation = request.get("conversation")
    if isinstance(conversation, Mapping):
        conversation = conversation.get("id")
    return conversation if isinstance(conversation, str) and conversation else None


def wants_logprobs(request: Mapping[str, Any]) -> bool:
    """Return whether the answer is to have the log probabilities of its tokens."""
    include = request.get("include")
    return isinstance(include, list) and _LOGPROBS in include


def chat_request(request: Mapping[str, Any], earlier: Held | None, problems: list[Unsayable]) -> dict[str, Any]:
    """The request in the chat form. Fields that both forms have, and unknown ones, stay as they are.

    Args:
        earlier: what `history` names; None where it was not seen.
        problems: gets what the chat form has no word for.
    """
    kept = {
        name: value
        for name, value in request.items()
        if value is not None and name not in _TRANSLATED and name not in _DROPPED
    }
    asked = kept | {"messages": _messages(request, earlier, problems)} | _tools(request, problems)
    if "tools" not in asked:
        asked.pop("parallel_tool_calls", None)
    return asked | _limits(request) | _text(request.get("text"), problems)


def _messages(request: Mapping[str, Any], earlier: Held | None, problems: list[Unsayable]) -> list[Message]:
    messages: list[Message] = []
    instructions, asked = request.get("instructions"), request.get("input")
    if isinstance(instructions, str):
        if instructions:
            messages.append({"role": "system", "content": instructions})
    elif instructions is not None:
        messages.append(_unsaid(instructions, Unsayable("unsayable", "instructions"), problems))
    if request.get("prompt"):  # a template of messages
        messages.append(_unsaid(request["prompt"], Unsayable("history_unseen", "prompt"), problems))
    if (name := history(request)) is not None:
        if earlier is None:
            at = "previous_response_id" if request.get("previous_response_id") == name else "conversation"
            messages.append(_unsaid({"id": name}, Unsayable("history_unseen", at), problems))
        else:
            messages += earlier.messages
    if isinstance(asked, str):
        messages.append({"role": "user", "content": asked})
    elif isinstance(asked, list):
        messages += messages_of(asked, "input", problems)
    elif asked is not None or not _held(request):
        messages.append(_unsaid(asked, Unsayable("unsayable", "input"), problems))
    if not messages:
        messages.append(_unsaid([], Unsayable("unsayable", "input"), problems))
    return messages


def _unsaid(value: Any, problem: Unsayable, problems: list[Unsayable]) -> Message:
    problems.append(problem)
    return {"role": "system", "content": [value]}


def _tools(request: Mapping[str, Any], problems: list[Unsayable]) -> dict[str, Any]:
    """Without a tool, a choice among them is left out too: chat servers refuse it, and it says nothing."""
    tools = chat_tools(request.get("tools"), problems)
    choice = request.get("tool_choice")
    asked: dict[str, Any] = {"tools": tools} if tools else {}
    if choice is not None and (tools or choice not in ("auto", "none")):
        asked["tool_choice"] = chat_tool_choice(choice, problems)
    if is_among_some(asked.get("tool_choice")):
        if (few := narrowed(asked)) is not None:
            return few
        problems.append(Unsayable("unsayable", "tool_choice"))
    return asked


def _limits(request: Mapping[str, Any]) -> dict[str, Any]:
    asked = {}
    if request.get("max_output_tokens") is not None:
        asked["max_completion_tokens"] = request["max_output_tokens"]
    reasoning = request.get("reasoning")
    if isinstance(reasoning, Mapping) and reasoning.get("effort") is not None:
        asked["reasoning_effort"] = reasoning["effort"]
    if wants_logprobs(request):
        asked["logprobs"] = True
        if request.get("top_logprobs") is not None:
            asked["top_logprobs"] = request["top_logprobs"]
    return asked


def _text(text: Any, problems: list[Unsayable]) -> dict[str, Any]:
    if text is None:
        return {}
    if not isinstance(text, Mapping):
        problems.append(Unsayable("unsayable", "text"))
        return {}
    asked = {} if text.get("verbosity") is None else {"verbosity": text["verbosity"]}
    form = text.get("format")
    kind = kind_of(form)
    if isinstance(form, Mapping) and kind == "json_schema":
        schema = {name: value for name, value in form.items() if name != "type" and value is not None}
        asked["response_format"] = {"type": kind, kind: schema}
    elif kind == "json_object":
        asked["response_format"] = {"type": kind}
    elif form is not None and kind != "text":
        problems.append(Unsayable("unsayable", "text.format"))
    return asked


def _held(request: Mapping[str, Any]) -> bool:
    return bool(request.get("prompt")) or history(request) is not None
