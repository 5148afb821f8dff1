"""A chat completion as the response that it stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slipstream.dialects.responses.completion import FINISH_REASONS
from slipstream.dialects.responses.request import wants_logprobs
from slipstream.dialects.responses.turn import CALLS
from slipstream.trajectory import answer_message, message_text

_ITEM_OF_CALL = {kind: item for item, (kind, _) in CALLS.items()}
_PREFIXES = {"function_call": "fc", "custom_tool_call": "ctc"}
_INCOMPLETE = {finish: reason for reason, finish in FINISH_REASONS.items()}

_ECHOED: Mapping[str, Any] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
"""Fields of the request that a response says again, with what it says where the request says nothing."""


def response_of(completion: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """The response that the first choice of a `chat.completion` gives to this request.

    Its id is the completion's, since feedback names it; the ids of its items are made of that.
    """
    reason = _INCOMPLETE.get(_choice(completion).get("finish_reason") or "")
    status = "incomplete" if reason else "completed"
    created = completion.get("created") or 0
    return {
        "id": completion.get("id"),
        "object": "response",
        "created_at": created,
        "completed_at": None if reason else created,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "model": completion.get("model"),
        "output": _output(completion, status, logprobs=wants_logprobs(request)),
        "usage": _usage(completion.get("usage")),
        "service_tier": "default",
        **_echo(request),
    }


def _echo(request: Mapping[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for field, default in _ECHOED.items():
        asked = default if request.get(field) is None else request[field]
        said[field] = default | asked if isinstance(default, dict) and isinstance(asked, dict) else asked
    conversation = request.get("conversation")
    if conversation is not None:
        said["conversation"] = {"id": conversation} if isinstance(conversation, str) else conversation
    return said


def _choice(completion: Mapping[str, Any]) -> Mapping[str, Any]:
    choices: Sequence[Mapping[str, Any]] = completion.get("choices") or [{}]
    return choices[0]


def _output(completion: Mapping[str, Any], status: str, *, logprobs: bool) -> list[dict[str, Any]]:
    message, name = answer_message(completion), completion.get("id")
    output: list[dict[str, Any]] = []
    if thought := message.get("reasoning_content") or message.get("reasoning"):
        text = {"type": "reasoning_text", "text": thought}
        output.append({"id": f"rs_{name}", "type": "reasoning", "summary": [], "content": [text], "status": status})
    calls = [*(message.get("tool_calls") or [])]
    if function := message.get("function_call"):  # as chat servers wrote it before there were `tool_calls`
        calls.append({"type": "function", "function": function})
    if (parts := _parts(completion, message, logprobs=logprobs)) or not calls:
        about = {"id": f"msg_{name}", "type": "message", "status": status, "role": "assistant"}
        output.append(about | {"content": parts or [_text("", [])]})
    return output + [_call(call, f"{name}_{index}", status) for index, call in enumerate(calls)]


def _parts(completion: Mapping[str, Any], message: Mapping[str, Any], *, logprobs: bool) -> list[dict[str, Any]]:
    parts = []
    if content := message_text(message):
        tokens = (_choice(completion).get("logprobs") or {}).get("content") if logprobs else None
        parts.append(_text(content, [_token(token) for token in tokens or []]))
    if refusal := message.get("refusal"):
        parts.append({"type": "refusal", "refusal": refusal})
    return parts


def _text(text: str, logprobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def _token(token: Mapping[str, Any]) -> dict[str, Any]:
    return _spelt(token) | {"top_logprobs": [_spelt(other) for other in token.get("top_logprobs") or []]}


def _spelt(token: Mapping[str, Any]) -> dict[str, Any]:
    """A token with its bytes, which chat servers may leave out."""
    text = token.get("token") or ""
    spelling = token.get("bytes")
    if spelling is None:
        spelling = list(text.encode("utf-8", "replace"))
    return {"token": text, "logprob": token.get("logprob"), "bytes": spelling}


def _call(call: Mapping[str, Any], name: str, status: str) -> dict[str, Any]:
    kind = "custom" if call.get("type") == "custom" else "function"
    item = _ITEM_OF_CALL[kind]
    passed = CALLS[item][1]
    called = call.get(kind) or {}
    return {
        "id": f"{_PREFIXES[item]}_{name}",
        "type": item,
        "status": status,
        "call_id": call.get("id") or f"call_{name}",
        "name": called.get("name") or "",
        passed: called.get(passed) or "",
    }


def _usage(usage: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not usage:
        return None
    read, written = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    cached = usage.get("prompt_tokens_details") or {}
    thought = usage.get("completion_tokens_details") or {}
    return {
        "input_tokens": read,
        "input_tokens_details": {
            "cached_tokens": cached.get("cached_tokens") or 0,
            "cache_write_tokens": cached.get("cache_write_tokens") or 0,
        },
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": thought.get("reasoning_tokens") or 0},
        "total_tokens": usage.get("total_tokens") or read + written,
    }
