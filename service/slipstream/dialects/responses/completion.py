"""A response as the chat completion that it stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slipstream.dialects.body import Reason
from slipstream.dialects.form import Unsayable
from slipstream.dialects.responses.turn import CALLS, Turn
from slipstream.dialects.responses.vocabulary import kind_of, problem_of_item

FINISH_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}
"""Reasons of an incomplete response for which a chat completion has a `finish_reason`."""

_STATUSES = ("completed", "incomplete")


def flaw(response: Mapping[str, Any], *, whole: bool) -> Reason | None:
    """The reason why this is no finished response; None if it is one."""
    output, status = response.get("output"), response.get("status")
    if not isinstance(output, list):
        return "no_answer"
    if response.get("error") or (status is not None and status not in _STATUSES):
        return "unfinished"
    if status == "incomplete" and _finish_reason(response, ()) is None:
        return "unfinished"
    if not all(map(_is_item, output)) or not (output or status == "incomplete"):
        return "no_answer"
    return "incomplete" if status is None and not whole else None


def completion_of(response: Mapping[str, Any], problems: list[Unsayable]) -> dict[str, Any]:
    """The `chat.completion` of a response without a flaw; thoughts are left out.

    Args:
        problems: gets what the chat form has no word for, which is left out too.
    """
    turn = Turn(problems)
    annotations, logprobs = list[Any](), list[Any]()
    for index, item in enumerate(response["output"]):
        kind, at = kind_of(item), f"output[{index}]"
        if kind in CALLS:
            turn.call(item, at)
        elif kind == "message":
            parts = _parts(item)
            turn.say_parts(parts, at)
            for part in parts:
                annotations += map(_annotation, _list(part, "annotations"))
                logprobs += _list(part, "logprobs")
        elif kind != "reasoning":
            problems.append(Unsayable(problem_of_item(item), at))
    message: dict[str, Any] = {"role": "assistant", "content": turn.text, "refusal": turn.refusal}
    if turn.calls:
        message["tool_calls"] = turn.calls
    if annotations:
        message["annotations"] = annotations
    choice = {
        "index": 0,
        "message": message,
        "logprobs": {"content": logprobs, "refusal": None} if logprobs else None,
        "finish_reason": _finish_reason(response, turn.calls),
    }
    completion = {
        "id": response.get("id"),
        "object": "chat.completion",
        "created": _seconds(response.get("created_at")),
        "model": response.get("model"),
        "choices": [choice],
    }
    usage = _usage(response.get("usage"))
    return completion | ({"usage": usage} if usage else {})


def _is_item(item: Any) -> bool:
    """Return whether this can be an item of an output, with the fields that are read of its kind."""
    kind = kind_of(item)
    if kind in CALLS:
        return all(isinstance(item.get(field), str) for field in ("call_id", "name", CALLS[kind][1]))
    if kind == "message":
        content = item.get("content")
        return isinstance(content, str) or (isinstance(content, list) and not set(map(type, content)) - {dict})
    return bool(kind)


def _parts(item: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    content = item["content"]
    return [{"type": "output_text", "text": content}] if isinstance(content, str) else content


def _list(part: Mapping[str, Any], field: str) -> list[Any]:
    value = part.get(field)
    return value if isinstance(value, list) else []


def _annotation(annotation: Any) -> Any:
    """An annotation in the chat form, which knows citations of a page."""
    if kind_of(annotation) != "url_citation" or "url_citation" in annotation:
        return annotation
    cited = {name: value for name, value in annotation.items() if name != "type"}
    return {"type": "url_citation", "url_citation": cited}


def _finish_reason(response: Mapping[str, Any], calls: Sequence[Any]) -> str | None:
    if response.get("status") == "incomplete":
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, Mapping) else None
        return FINISH_REASONS.get(reason) if isinstance(reason, str) else None
    return "tool_calls" if calls else "stop"


def _seconds(time: Any) -> int:
    return int(time) if type(time) in (int, float) else 0


def _usage(usage: Any) -> dict[str, Any] | None:
    if not isinstance(usage, Mapping):
        return None
    counted = {
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
        "total_tokens": usage.get("total_tokens"),
        "prompt_tokens_details": usage.get("input_tokens_details"),
        "completion_tokens_details": usage.get("output_tokens_details"),
    }
    return {name: value for name, value in counted.items() if value is not None}
