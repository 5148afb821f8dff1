"""A streamed answer of the Messages API put together again, and an answer as a stream.

Written here because what exists does not fit: the SDK's accumulator works on its own response types, and drops fields
that it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from slipstream.dialects.body import Unreadable, parse_json
from slipstream.dialects.events import event, events
from slipstream.dialects.messages.blocks import input_of, kind_of
from slipstream.jsontext import values
from slipstream.memory.parsing import MAX_VALUES

_MAX_VALUES_OF_EVENTS = 4 * MAX_VALUES
"""Values of all events of a stream. Most are the frame around a piece of text, and gone when the next one is read."""

_TEXTS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
    "input_json_delta": ("tool_use", "partial_json"),
}
"""The type of the block that a delta belongs to, and the field with its text."""


class _Block:
    """A block that is being put together.

    Attributes:
        value: its first form, with the citations that came.
        pieces: the texts that came, by field.
    """

    __slots__ = ("pieces", "value")

    def __init__(self, value: dict[str, Any]) -> None:
        self.value = value
        self.pieces: dict[str, list[str]] = {}

    def add(self, delta: dict[str, Any]) -> None:
        kind = kind_of(delta)
        if kind in _TEXTS:
            field = _TEXTS[kind][1]
            self.pieces.setdefault(field, []).append(_text(delta.get(field)))
        elif kind == "citations_delta":
            self.value["citations"] = [*(self.value.get("citations") or ()), delta.get("citation")]
        else:  # such as `compaction_delta`: each field is the whole of it
            self.value |= {key: value for key, value in delta.items() if key != "type"}

    def whole(self) -> dict[str, Any]:
        value = self.value
        for field, pieces in self.pieces.items():
            text = "".join(pieces)
            if field == "partial_json":
                if text.strip():  # some gateways send the input whole with the start
                    value["input"] = input_of(text)
            else:
                before = value.get(field)
                value[field] = (before if isinstance(before, str) else "") + text
        return value


class _Assembly:
    """The message so far."""

    def __init__(self) -> None:
        self.message: dict[str, Any] | None = None
        self._blocks: dict[int, _Block] = {}

    def start(self, data: dict[str, Any]) -> None:
        if self.message is None:
            self.message = dict(_object(data.get("message")))

    def start_block(self, data: dict[str, Any]) -> None:
        self._blocks[_index(data)] = _Block(dict(_object(data.get("content_block"))))

    def add(self, data: dict[str, Any]) -> None:
        index, delta = _index(data), _object(data.get("delta"))
        if index not in self._blocks:  # a gateway left the start out
            self._blocks[index] = _Block({"type": _TEXTS.get(kind_of(delta), ("", ""))[0]})
        self._blocks[index].add(delta)

    def end(self, data: dict[str, Any]) -> None:
        """Take what the end of the message says; the counts are of the whole message."""
        message = self._started()
        message |= _said(_object(data.get("delta") or {}))
        message |= _said({key: value for key, value in data.items() if key not in ("type", "delta", "usage")})
        usage = data.get("usage")
        if isinstance(usage, dict):
            before = message.get("usage")
            message["usage"] = (before if isinstance(before, dict) else {}) | _said(usage)

    def whole(self) -> dict[str, Any]:
        message = self._started()
        first = message.get("content")
        blocks = [self._blocks[index].whole() for index in sorted(self._blocks)]
        message["content"] = (first if isinstance(first, list) else []) + blocks
        return message

    def _started(self) -> dict[str, Any]:
        if self.message is None:
            raise Unreadable("no_answer")
        return self.message


_STEPS: dict[str, Callable[[_Assembly, dict[str, Any]], None]] = {
    "message_start": _Assembly.start,
    "content_block_start": _Assembly.start_block,
    "content_block_delta": _Assembly.add,
    "message_delta": _Assembly.end,
}


def assemble(body: bytes) -> dict[str, Any]:
    """The `message` object that a whole event stream stands for.

    Its stop reason must have come, which is said after all of the content. A tool's input that is no JSON object (the
    answer may end in the middle of it) is kept as `blocks.input_of` says.

    Raises:
        Unreadable: `too_many_values`, `error_in_stream`, `truncated_stream`, `not_json`, or `no_answer` for events of
            another form.
    """
    if values(body) > _MAX_VALUES_OF_EVENTS:
        raise Unreadable("too_many_values")
    assembly = _Assembly()
    for name, text in events(body):
        if text.strip() == b"[DONE]":  # of gateways that end all streams as OpenAI does
            break
        if name == "error":
            raise Unreadable("error_in_stream")
        data = _object(parse_json(text))
        kind = kind_of(data) or name
        if kind == "error" or data.get("error"):
            raise Unreadable("error_in_stream")
        if kind == "message_stop":
            break
        if (step := _STEPS.get(kind)) is not None:
            step(assembly, data)
    if assembly.message is None or not assembly.message.get("stop_reason"):
        raise Unreadable("truncated_stream")
    return assembly.whole()


def stream(answer: Mapping[str, Any]) -> Iterator[bytes]:
    """The events of an answer, each block in one piece."""
    usage = answer.get("usage") or {}
    ends = {"stop_reason": answer.get("stop_reason"), "stop_sequence": answer.get("stop_sequence")}
    begun = {**answer, **dict.fromkeys(ends), "content": [], "usage": {**usage, "output_tokens": 0}}
    yield _event({"type": "message_start", "message": begun})
    for index, block in enumerate(answer["content"]):
        start, deltas = _pieces(block)
        yield _event({"type": "content_block_start", "index": index, "content_block": start})
        for delta in deltas:
            yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _event({"type": "content_block_stop", "index": index})
    yield _event({"type": "message_delta", "delta": ends, "usage": usage})
    yield _event({"type": "message_stop"})


def _event(data: dict[str, Any]) -> bytes:
    return event(data, data["type"])


def _pieces(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it starts, and the deltas that complete it. Blocks of other types come whole."""
    kind = kind_of(block)
    if kind == "text":
        deltas = [{"type": "citations_delta", "citation": citation} for citation in block.get("citations") or ()]
        start = {**block, "text": ""} | ({"citations": []} if deltas else {})
        return start, [*deltas, {"type": "text_delta", "text": block["text"]}]
    if kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
        deltas.append({"type": "signature_delta", "signature": block.get("signature", "")})
        return {**block, "thinking": "", "signature": ""}, deltas
    if kind == "tool_use":
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
    return dict(block), []


def _said(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Unreadable("no_answer")
    return value


def _index(data: dict[str, Any]) -> int:
    index = data.get("index")
    if type(index) is not int:
        raise Unreadable("no_answer")
    return index


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Unreadable("no_answer")
    return value
