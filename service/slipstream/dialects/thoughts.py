"""Thoughts of a model in the messages of a chat: what it wrote for itself, beside what it said."""

from __future__ import annotations

from typing import Any

_FIELDS = frozenset({"reasoning_content", "reasoning", "reasoning_details", "thinking_blocks"})
"""Fields of an assistant's message that hold them: vLLM's and DeepSeek's, OpenRouter's, LiteLLM's."""

THOUGHT_PARTS = frozenset({"thinking", "reasoning"})
"""Types of parts of its content that do, as Mistral's models have them."""


def without_thoughts(messages: list[Any]) -> list[Any]:
    """Return the messages of a request without thoughts: the list itself where there are none."""
    said = [_said(message) for message in messages]
    same = all(left is message for left, message in zip(said, messages, strict=True))
    return messages if same else said


def _said(message: Any) -> Any:
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return message
    content = message.get("content")
    parts = [part for part in content if not _is_thought(part)] if isinstance(content, list) else content
    if parts == content and _FIELDS.isdisjoint(message):
        return message
    kept = {name: value for name, value in message.items() if name not in _FIELDS}
    return kept | ({"content": parts or ""} if parts != content else {})


def _is_thought(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in THOUGHT_PARTS
