"""Messages of a conversation, as the agent sees them and as the model that plays the user does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slipstream_client.validation import clean

Message = dict[str, Any]

_OPENING = "Hello. How can I help you?"
"""Said before the user's first message: many chat templates want a conversation to begin with the other side."""

_NO_ANSWER = "(no answer)"
"""In place of an empty answer of the agent, which many endpoints refuse."""

_OTHER_SIDE = {"user": "assistant", "assistant": "user"}


def first_messages(first: str | Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return the messages that a conversation begins with.

    Raises:
        TypeError, ValueError: it is neither text nor messages of which the last one is the user's.
    """
    if isinstance(first, str):
        return [{"role": "user", "content": first}]
    messages = [dict(each) for each in first if isinstance(each, Mapping)] if isinstance(first, Sequence) else None
    if messages is None or len(messages) != len(first):
        raise TypeError(f"first: expected the user's first message, or a list of messages, found {first!r}")
    if not messages or messages[-1].get("role") != "user":
        raise ValueError("first: expected messages of which the last one is the user's")
    return messages


def answered(answer: object) -> list[Message]:
    """Return the messages that an agent's turn adds: of text, of a message, or of a list of messages.

    Raises:
        TypeError: it is nothing of that.
    """
    if isinstance(answer, str):
        return [{"role": "assistant", "content": answer}]
    if isinstance(answer, Mapping):
        return [{"role": "assistant", **answer}]
    if isinstance(answer, (list, tuple)) and answer and all(isinstance(each, Mapping) for each in answer):
        return [{"role": "assistant", **each} for each in answer]
    content = getattr(answer, "content", None)  # a message of an SDK
    if isinstance(content, str):
        return [{"role": "assistant", "content": content}]
    raise TypeError(
        f"reply: expected the agent's text, a message or a list of messages, found a {type(answer).__name__}"
    )


def seen_by_user(messages: Sequence[Mapping[str, Any]], system: str) -> list[Message]:
    """Return a conversation as the user's model is asked: sides swapped, without tools and the agent's instructions."""
    seen: list[Message] = [{"role": "system", "content": clean(system)}, {"role": "user", "content": _OPENING}]
    for message in messages:
        role = _OTHER_SIDE.get(str(message.get("role")))
        if role is None or (role == "user" and message.get("tool_calls")):
            continue
        text = clean(text_of(message)).strip() or _NO_ANSWER
        if seen[-1]["role"] == role and len(seen) > 2:  # sides must take turns
            seen[-1]["content"] += f"\n\n{text}"
        else:
            seen.append({"role": role, "content": text})
    return seen


def text_of(message: Mapping[str, Any]) -> str:
    """Return a message's text: that of its parts, where it has several."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, (list, tuple)):
        texts = (part.get("text") for part in content if isinstance(part, Mapping))
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""
