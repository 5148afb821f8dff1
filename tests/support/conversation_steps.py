"""Steps of conversations that go on, are asked again, branch off, are edited or become shorter."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

_TEXT = st.text(max_size=6) | st.sampled_from(["\ud800", "é", '"}, {"role"', "sk-" + "a1" * 20, "\\u0041"])
MESSAGE = st.builds(lambda role, content: {"role": role, "content": content}, st.sampled_from(["user", "tool"]), _TEXT)
"""A message, with text that redaction, escapes or a careless search for the next message would get wrong."""


def said_next(messages: list[Any], way: str, new: list[Any], at: int) -> list[Any]:
    """The messages of the next request.

    Args:
        messages: of the request before it.
        way: "on", "again", "branch", "edit" or "shorter".
        new: messages that are said now.
        at: the place of a branch, an edit or a cut; any number.
    """
    at %= len(messages) + 1
    match way:
        case "again" if messages:
            return messages
        case "branch":
            return [*messages[:at], *new]
        case "edit" if messages:
            return [*messages[:at], *new[:1], *messages[at + 1 :]]
        case "shorter":
            return messages[at:] or new
    return [*messages, {"role": "assistant", "content": "yes"}, *new] if messages else new
