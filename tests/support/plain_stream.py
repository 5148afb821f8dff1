"""A streamed chat completion put together in the plain way, each chunk read whole: what the quick way must equal."""

from __future__ import annotations

from typing import Any

from slipstream.dialects.body import Unreadable, parse_json
from slipstream.dialects.events import events
from slipstream.jsontext import values
from slipstream.memory.parsing import MAX_VALUES

TEXT_FIELDS = frozenset({"content", "refusal", "reasoning_content", "reasoning"})
"""Fields of a delta whose strings are pieces of one text. Of any other field the last value counts."""

MAX_VALUES_OF_CHUNKS = 4 * MAX_VALUES
"""Values of all chunks of a stream. Most say again what the one before said, and are gone when the next one is read."""


def assemble(body: bytes, choices_asked: int | None = None) -> dict[str, Any]:
    """The `chat.completion` object that a whole stream of `chat.completion.chunk` stands for.

    Every choice must have finished and `[DONE]` must have come, else the answer may be a part of one.

    Args:
        choices_asked: `n` of the request; once so many choices have finished, `[DONE]` need not have come.

    Raises:
        Unreadable: `too_many_values`, `error_in_stream`, `truncated_stream`, `not_json`, or `no_answer` for
            chunks of another form.
    """
    if values(body) > MAX_VALUES_OF_CHUNKS:
        raise Unreadable("too_many_values")
    answer: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    done = False
    before: dict[str, Any] = {}
    for name, data in events(body):
        if data.strip() == b"[DONE]":
            done = True
            break
        if name == "error":
            raise Unreadable("error_in_stream")
        chunk = _object(parse_json(data))
        parts = chunk.pop("choices", None)
        chunk.pop("obfuscation", None)  # noise, another one in each chunk
        if chunk != before:  # most say again what the one before said
            before = chunk
            if chunk.get("error"):
                raise Unreadable("error_in_stream")
            for key, value in chunk.items():
                # Azure begins with a chunk of empty id and model; the id that the agent sees is the first real one.
                if value not in (None, "") and key != "object" and not (key == "id" and "id" in answer):
                    answer[key] = value
        for part in _objects(parts):
            index = part.get("index") or 0
            if type(index) is not int:
                raise Unreadable("no_answer")
            if index not in choices:
                message = {"role": "assistant", "content": None}
                choices[index] = {"index": index, "message": message, "logprobs": None, "finish_reason": None}
            _add_choice(choices[index], part)
    finished = all(choice.get("finish_reason") for choice in choices.values())
    if not finished or not (done or (choices_asked is not None and len(choices) >= choices_asked)):
        raise Unreadable("truncated_stream")
    if not choices:
        raise Unreadable("no_answer")
    for choice in choices.values():
        if calls := choice["message"].get("tool_calls"):
            choice["message"]["tool_calls"] = [calls[index] for index in sorted(calls)]
    return answer | {"object": "chat.completion", "choices": [choices[index] for index in sorted(choices)]}


def _add_choice(choice: dict[str, Any], part: dict[str, Any]) -> None:
    _add_delta(choice["message"], _object(part.get("delta") or {}))
    for key, value in part.items():
        if key == "logprobs" and value is not None:
            logprobs = choice["logprobs"] = choice["logprobs"] or {}
            for kind, tokens in _object(value).items():
                earlier = logprobs.get(kind)
                if isinstance(earlier, list) and isinstance(tokens, list):
                    earlier += tokens
                else:
                    logprobs[kind] = tokens
        elif key not in ("index", "delta", "logprobs", "message") and value is not None:
            choice[key] = value


def _add_delta(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for key, value in delta.items():
        if value in (None, [], {}):
            continue
        if key in TEXT_FIELDS:
            message[key] = (message.get(key) or "") + _text(value)
        elif key == "function_call":
            _add_function(message.setdefault(key, {}), _object(value), text="arguments")
        elif key == "tool_calls":
            _add_tool_calls(message.setdefault(key, {}), _objects(value))
        elif value != "":
            message[key] = value


def _add_tool_calls(calls: dict[int, dict[str, Any]], parts: list[dict[str, Any]]) -> None:
    for part in parts:
        call = calls.setdefault(_tool_call_index(calls, part), {})
        for key, value in part.items():
            if value in (None, "") or key == "index":
                continue
            if key == "function":
                _add_function(call.setdefault(key, {}), _object(value), text="arguments")
            elif key == "custom":
                _add_function(call.setdefault(key, {}), _object(value), text="input")
            else:
                call[key] = value


def _tool_call_index(calls: dict[int, dict[str, Any]], part: dict[str, Any]) -> int:
    """The index that the piece gives, which need not begin at 0; without one, its id tells whether it is a new call."""
    index, call_id = part.get("index"), part.get("id")
    if type(index) is int:
        return index
    last = max(calls, default=-1)
    if call_id:
        return next((known for known, call in calls.items() if call.get("id") == call_id), last + 1)
    return max(last, 0)


def _add_function(function: dict[str, Any], part: dict[str, Any], *, text: str) -> None:
    """Only the arguments come in pieces; a name comes whole, with some servers again in each piece."""
    for key, value in part.items():
        if key == text and value is not None:
            function[key] = function.get(key, "") + _text(value)
        elif value not in (None, ""):
            function[key] = value
    function.setdefault(text, "")


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Unreadable("no_answer")
    return value


def _objects(value: Any) -> list[dict[str, Any]]:
    return [_object(part) for part in value] if isinstance(value, list) else []


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Unreadable("no_answer")
    return value
