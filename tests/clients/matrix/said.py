"""Conversations in a plain form, read from requests of each dialect without the sidecar's own code.

The same conversation has the same form in each dialect, so that what production was asked can be compared with what
the policy was asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

Json = dict[str, Any]


class Said(NamedTuple):
    """One thing that was said: a text, or a tool that was called.

    Attributes:
        role: `system`, `developer`, `user`, `assistant`, `tool`; `call` for a call of a tool.
        text: of a call the tool's name and the arguments as JSON.
    """

    role: str
    text: str


def in_chat(request: Json) -> list[Said]:
    """The conversation of a request for a chat completion."""
    said = []
    for message in request["messages"]:
        said.append(Said(message["role"], _text(message.get("content"))))
        said += [
            _called(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or []
        ]
    return _joined(said)


def in_responses(request: Json, items: Mapping[str, Json], answered: Mapping[str, Sequence[Json]]) -> list[Said]:
    """The conversation of a request for a response.

    Args:
        items: those of earlier answers, by id.
        answered: the items of a conversation up to and with an answer, by the answer's id.
    """
    said = [Said("system", request.get("instructions") or "")]
    for item in items_of(request, items, answered):
        kind = item.get("type", "message")
        if kind == "message":
            said.append(Said(item["role"], _text(item["content"])))
        elif kind == "function_call":
            said.append(_called(item["name"], item["arguments"]))
        elif kind == "function_call_output":
            said.append(Said("tool", _text(item["output"])))
        else:
            assert kind == "reasoning", kind
    return _joined(said)


def items_of(request: Json, items: Mapping[str, Json], answered: Mapping[str, Sequence[Json]]) -> list[Json]:
    """All items of the conversation, with those that the provider holds."""
    asked = request["input"]
    given = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    held = answered[request["previous_response_id"]] if request.get("previous_response_id") else []
    return [*held, *(items[item["id"]] if item.get("type") == "item_reference" else item for item in given)]


def in_messages(request: Json) -> list[Said]:
    """The conversation of a request for a message of Anthropic's API."""
    said = [Said("system", text) for text in _texts(request.get("system")) if not text.startswith("x-anthropic-")]
    for message in request["messages"]:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if block["type"] == "text":
                said.append(Said(message["role"], block["text"]))
            elif block["type"] == "tool_use":
                said.append(_called(block["name"], json.dumps(block["input"])))
            elif block["type"] == "tool_result":
                said.append(Said("tool", _text(block.get("content"))))
            else:
                assert block["type"] in ("thinking", "redacted_thinking"), block["type"]
    return _joined(said)


def _called(name: str, arguments: str) -> Said:
    return Said("call", f"{name} {json.dumps(json.loads(arguments or '{}'), sort_keys=True)}")


def _text(content: Any) -> str:
    return "\n".join(_texts(content))


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part if isinstance(part, str) else _words(part) for part in content or []]


def _words(part: Json) -> str:
    text: str = part["tool_name"] if part["type"] == "tool_reference" else part["text"]
    return text


def _joined(said: Iterable[Said]) -> list[Said]:
    """Without empty texts, and what one role says in a row as one; each call and each result stays one."""
    joined = []
    for role, group in groupby([one for one in said if one.text.strip()], key=lambda one: one.role):
        texts = [one.text for one in group]
        joined += [Said(role, text) for text in texts] if role in ("call", "tool") else [Said(role, "\n".join(texts))]
    return joined
