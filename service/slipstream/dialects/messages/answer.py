"""An answer of the Messages API as a `chat.completion`, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipstream.dialects.messages.blocks import input_of, kind_of
from slipstream.dialects.messages.findings import Findings
from slipstream.dialects.messages.turns import assistant_message
from slipstream.trajectory import answer_message, message_text, message_tool_calls

_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    "pause_turn": "stop",
    "compaction": "stop",
}
"""Chat's word for each `stop_reason`. Gateways may use others, which stay as they are."""

_STOP_REASONS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}

_THINKS = ("enabled", "adaptive", "between_tools")
"""Types of `thinking` with which an agent is ready for blocks of thoughts."""


def chat_completion(answer: Mapping[str, Any], found: Findings) -> dict[str, Any]:
    """The answer in the chat form. The API does not say when it was made, so `created` is 0."""
    _check(answer, found)
    message = assistant_message(answer["content"], found)
    thoughts = [block.get("thinking") for block in answer["content"] if kind_of(block) == "thinking"]
    if thought := "\n".join([each for each in thoughts if isinstance(each, str) and each]):
        message["reasoning_content"] = thought
    reason = answer.get("stop_reason")
    finish_reason = _FINISH_REASONS.get(reason, reason) if isinstance(reason, str) else reason
    completion = {
        "id": answer.get("id"),
        "object": "chat.completion",
        "created": 0,
        "model": answer.get("model"),
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}],
    }
    usage = answer.get("usage")
    return completion | {"usage": _chat_usage(usage)} if isinstance(usage, dict) else completion


def message_object(completion: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """The `message` object that a chat completion is, as an answer to this request of the Messages API.

    Thoughts are in it if the request allows them: other agents read the text from the first block.
    """
    said = answer_message(completion)
    calls = message_tool_calls(said)
    content: list[dict[str, Any]] = []
    thought = said.get("reasoning_content") or said.get("reasoning")
    if thought and isinstance(thought, str) and kind_of(request.get("thinking")) in _THINKS:
        content.append({"type": "thinking", "thinking": thought, "signature": ""})
    if text := message_text(said) or said.get("refusal") or "":
        content.append({"type": "text", "text": text})
    content += [_tool_use(call, f"{completion.get('id')}_{place}") for place, call in enumerate(calls)]
    choice = (completion.get("choices") or [{}])[0]
    reason, sequence = _stop(choice, request, called=bool(calls))
    return {
        "id": completion.get("id"),
        "type": "message",
        "role": "assistant",
        "model": completion.get("model"),
        "content": content or [{"type": "text", "text": ""}],  # agents read the first block without a look
        "stop_reason": reason,
        "stop_sequence": sequence,
        "usage": _message_usage(completion.get("usage") or {}),
    }


def _check(answer: Mapping[str, Any], found: Findings) -> None:
    """Find parts beside the content that tell of more than the chat form holds."""
    if answer.get("container"):
        found.add("provider_tool", "container")
    if answer.get("stop_reason") == "pause_turn":
        found.add("provider_tool", "stop_reason")  # it stopped amid tools that the provider runs
    managed = answer.get("context_management")
    edits = managed.get("applied_edits") if isinstance(managed, dict) else None
    for edit in edits if isinstance(edits, list) else ():
        if not kind_of(edit).startswith("clear_thinking"):
            found.add("unsayable", "context_management.applied_edits")  # it read less than the request holds


def _chat_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """The tokens of a prompt are counted in three parts, those of an answer in one."""
    cached = _count(usage, "cache_read_input_tokens")
    prompt = _count(usage, "input_tokens") + _count(usage, "cache_creation_input_tokens") + cached
    completion = _count(usage, "output_tokens")
    counts: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    details = usage.get("output_tokens_details")
    if isinstance(details, dict):
        counts["completion_tokens_details"] = {"reasoning_tokens": _count(details, "thinking_tokens")}
    return counts


def _message_usage(usage: Mapping[str, Any]) -> dict[str, int]:
    prompt = _count(usage, "prompt_tokens")
    details = usage.get("prompt_tokens_details")
    cached = min(prompt, _count(details, "cached_tokens")) if isinstance(details, dict) else 0
    return {
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": _count(usage, "completion_tokens"),
    }


def _count(usage: Mapping[str, Any], name: str) -> int:
    value = usage.get(name)
    return value if type(value) is int else 0


def _tool_use(call: Mapping[str, Any], spare_id: str) -> dict[str, Any]:
    function = call.get("function") or {}
    return {
        "type": "tool_use",
        "id": call.get("id") or spare_id,
        "name": function.get("name") or "",
        "input": input_of(function.get("arguments")),
    }


def _stop(choice: Mapping[str, Any], request: Mapping[str, Any], *, called: bool) -> tuple[str, str | None]:
    """The stop reason, and the sequence that was met: vLLM says it in the choice."""
    finish_reason = choice.get("finish_reason")
    if called and finish_reason != "length":  # vLLM says "stop" after a call that was demanded by name
        return "tool_use", None
    sequence = choice.get("stop_reason")
    if finish_reason == "stop" and isinstance(sequence, str) and sequence in (request.get("stop_sequences") or ()):
        return "stop_sequence", sequence
    return _STOP_REASONS.get(finish_reason, "end_turn") if isinstance(finish_reason, str) else "end_turn", None
