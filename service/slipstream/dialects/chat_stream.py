"""A streamed chat completion put together again from its server-sent events.

Written here because what exists does not fit: the openai SDK's accumulator works on its own response types (and adds
up numbers and unknown strings).
"""

from __future__ import annotations

from typing import Any

from slipstream.dialects.body import Unreadable, parse_json
from slipstream.dialects.content_parts import ContentParts
from slipstream.dialects.events import events
from slipstream.dialects.repeats import NOISE, TEXT_FIELDS, Repeats
from slipstream.dialects.tool_call_pieces import ToolCalls, add_function
from slipstream.jsontext import values
from slipstream.memory.parsing import MAX_VALUES

MAX_VALUES_OF_CHUNKS = 4 * MAX_VALUES
"""Values of all chunks of a stream. Most say again what the one before said, and are gone when the next one is read."""

_IN_PIECES = ("tool_calls", "function_call", "audio")
"""Fields of a delta, beside texts, that add to what came before."""


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
    repeats = Repeats()
    for name, data in events(body):
        if name != "error" and repeats.take(data):
            continue
        repeats.end()
        if data.strip() == b"[DONE]":
            done = True
            break
        if name == "error":
            raise Unreadable("error_in_stream")
        chunk = _object(parse_json(data))
        parts = chunk.pop("choices", None)
        chunk.pop(NOISE, None)
        if chunk != before:  # most say again what the one before said
            before = chunk
            if chunk.get("error"):
                raise Unreadable("error_in_stream")
            for key, value in chunk.items():
                # Azure begins with a chunk of empty id and model; the id that the agent sees is the first real one.
                if value not in (None, "") and key != "object" and not (key == "id" and "id" in answer):
                    answer[key] = value
        for part in (parts := _objects(parts)):
            index = part.get("index") or 0
            if type(index) is not int:
                raise Unreadable("no_answer")
            if index not in choices:
                message = {"role": "assistant", "content": None}
                choices[index] = {"index": index, "message": message, "logprobs": None, "finish_reason": None}
            _add_choice(choices[index], part)
        if len(parts) == 1 and (text := _text_alone(parts[0], message := choices[index]["message"])) is not None:
            repeats.learn(data, message, text)
    repeats.end()
    finished = all(choice.get("finish_reason") for choice in choices.values())
    if not finished or not (done or (choices_asked is not None and len(choices) >= choices_asked)):
        raise Unreadable("truncated_stream")
    if not choices:
        raise Unreadable("no_answer")
    for choice in choices.values():
        message = choice["message"]
        if isinstance(content := message["content"], ContentParts):
            message["content"] = content.whole
        if "tool_calls" in message:
            message["tool_calls"] = message["tool_calls"].in_order
    return answer | {"object": "chat.completion", "choices": [choices[index] for index in sorted(choices)]}


def _text_alone(part: dict[str, Any], message: dict[str, Any]) -> str | None:
    """The field of the text that a part of a choice adds, if the same part once more would add nothing else."""
    delta = part.get("delta")
    if not delta or part.get("logprobs") is not None or any(map(delta.get, _IN_PIECES)):
        return None
    texts = [name for name in TEXT_FIELDS if delta.get(name)]
    return texts[0] if len(texts) == 1 and isinstance(message[texts[0]], str) else None


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
        if key == "content" and isinstance(content := message[key], ContentParts):
            content.add(value if isinstance(value, list) else _text(value))
        elif key == "content" and isinstance(value, list):
            message[key] = ContentParts(content or "", value)
        elif key in TEXT_FIELDS:
            message[key] = (message.get(key) or "") + _text(value)
        elif key == "function_call":
            add_function(message.setdefault(key, {}), value, text="arguments")
        elif key == "tool_calls":
            message.setdefault(key, ToolCalls()).add(_objects(value))
        elif key == "audio":
            _add_audio(message.setdefault(key, {}), _object(value))
        elif value != "":
            message[key] = value


def _add_audio(audio: dict[str, Any], part: dict[str, Any]) -> None:
    """Only what was said comes in pieces, as sound and in words."""
    for key, value in part.items():
        if key in ("data", "transcript") and value is not None:
            audio[key] = audio.get(key, "") + _text(value)
        elif value is not None:
            audio[key] = value


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
