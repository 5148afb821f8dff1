"""Messages as chat templates of Hugging Face's transformers take them, which TRL and Trinity-RFT fill.

A template has text and not parts, and the arguments of a call as an object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from slipstream.datasets.formats.normal import arguments_of, spelled
from slipstream.datasets.formats.said import Message, Unsayable


def templated(messages: Iterable[Message]) -> list[Message]:
    """Return messages for a template.

    Raises:
        Unsayable: a message has more than text, is a refusal, or has a number that JSON's readers do not take.
    """
    return [_templated(message) for message in messages]


def from_templated(messages: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Return them in normal form again."""
    return [_normal(message) for message in messages]


def _templated(message: Message) -> Message:
    if not isinstance(message.get("content", ""), str):
        raise Unsayable("more_than_text")
    if "refusal" in message:
        raise Unsayable("refusal")
    said = {"role": message["role"], "content": message.get("content", ""), **message}
    if "tool_calls" in message:
        said["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": _object(call["function"]["arguments"])}}
            for call in message["tool_calls"]
        ]
    return said


def _object(text: str) -> Any:
    arguments = arguments_of(text)
    if not _readable(arguments):
        raise Unsayable("number_of_more_than_64_bits")  # `datasets` would lose the whole file by it
    return arguments


def _readable(value: Any) -> bool:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, int) and not -(2**63) <= item < 2**63:
            return False
    return True


def _normal(message: Mapping[str, Any]) -> Message:
    said = dict(message)
    if "tool_calls" in message:
        said["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": spelled(call["function"]["arguments"])}}
            for call in message["tool_calls"]
        ]
        if not message["content"]:
            del said["content"]
    return said
