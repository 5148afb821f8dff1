"""The items of a conversation as chat messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slipstream.dialects.form import Unsayable
from slipstream.dialects.responses.turn import CALLS, Turn
from slipstream.dialects.responses.vocabulary import TEXT_PARTS, kind_of, problem_of_item, problem_of_part

_ROLES = frozenset({"user", "system", "developer"})
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})

_THOUGHT = "rs_"
"""The beginning of an item's id that tells of a reference to a thought."""


def messages_of(items: Sequence[Any], at: str, problems: list[Unsayable]) -> list[dict[str, Any]]:
    """The messages that a chat of the same conversation has.

    Calls of tools and the message before or after them are one message of the assistant, as the model gave them in one
    answer; so are messages of the assistant that came as parts, as an answer has them. Thoughts are left out.

    Args:
        at: the field that holds the items.
        problems: gets what the chat form has no word for.
    """
    messages = _Messages(problems)
    for index, item in enumerate(items):
        messages.add(item, f"{at}[{index}]")
    return messages.finish()


class _Messages:
    def __init__(self, problems: list[Unsayable]) -> None:
        self._list: list[dict[str, Any]] = []
        self._turn: Turn | None = None
        self._in_parts = False
        """True if the words of the turn came as parts, so that more of them may follow."""
        self._problems = problems

    def add(self, item: Any, at: str) -> None:
        kind = kind_of(item)
        if kind == "reasoning" or (kind == "item_reference" and str(item.get("id")).startswith(_THOUGHT)):
            return
        if kind in CALLS:
            self._open().call(item, at)
        elif kind == "message" and item.get("role") == "assistant":
            self._say(item.get("content"), at)
        elif kind == "message" and isinstance(item.get("role"), str) and item["role"] in _ROLES:
            self._put({"role": item["role"], "content": self._content(item.get("content"), f"{at}.content")})
        elif kind in _OUTPUTS and isinstance(item.get("call_id"), str):
            content = self._content(item.get("output"), f"{at}.output")
            self._put({"role": "tool", "tool_call_id": item["call_id"], "content": content})
        else:
            self._problems.append(Unsayable(problem_of_item(item), at))
            self._put({"role": "assistant", "content": [item]})

    def finish(self) -> list[dict[str, Any]]:
        if self._turn is not None:
            self._list.append(self._turn.message())
            self._turn = None
        return self._list

    def _open(self) -> Turn:
        if self._turn is None:
            self._turn = Turn(self._problems)
            self._in_parts = False
        return self._turn

    def _say(self, content: Any, at: str) -> None:
        in_parts = isinstance(content, list)
        if self._turn is not None and self._turn.has_spoken and not (in_parts and self._in_parts):
            self.finish()
        turn = self._open()
        self._in_parts = in_parts
        if isinstance(content, str):
            turn.say(content)
        elif content is not None:
            turn.say_parts(content if in_parts else [content], at)

    def _put(self, message: dict[str, Any]) -> None:
        self.finish()
        self._list.append(message)

    def _content(self, content: Any, at: str) -> Any:
        """Content in the chat form: parts of text where there are several, one text else."""
        if isinstance(content, str):
            return content
        if not isinstance(content, list):
            self._problems.append(Unsayable("unsayable", at))
            return [content]
        parts = [self._part(part, f"{at}[{index}]") for index, part in enumerate(content)]
        if len(parts) == 1 and kind_of(parts[0]) == "text" and isinstance(parts[0].get("text"), str):
            return parts[0]["text"]
        return parts or ""

    def _part(self, part: Any, at: str) -> Any:
        if kind_of(part) in TEXT_PARTS and isinstance(part.get("text"), str):
            return {"type": "text", "text": part["text"]}
        self._problems.append(Unsayable(problem_of_part(part), at))
        return part
