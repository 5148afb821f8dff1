"""One turn of the assistant: many items in the Responses API, one message in the chat form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slipstream.dialects.form import Problem, Unsayable
from slipstream.dialects.responses.vocabulary import TEXT_PARTS, kind_of, problem_of_part

CALLS = {"function_call": ("function", "arguments"), "custom_tool_call": ("custom", "input")}
"""Items that call a tool which the agent runs: the type of the chat form's call, and the field of what is passed."""


class Turn:
    """Gathers what the assistant said and called, until a message or the output of a tool follows.

    Attributes:
        text, refusal: what was said, None where nothing was.
        calls: in the chat form's `tool_calls`.
    """

    def __init__(self, problems: list[Unsayable]) -> None:
        self.text: str | None = None
        self.refusal: str | None = None
        self.calls: list[dict[str, Any]] = []
        self._unsaid: list[Any] = []
        self._problems = problems

    @property
    def has_spoken(self) -> bool:
        return self.text is not None or self.refusal is not None

    def say(self, text: str) -> None:
        self.text = (self.text or "") + text

    def say_parts(self, parts: Sequence[Any], at: str) -> None:
        """Add the content parts of a message."""
        for index, part in enumerate(parts):
            kind = kind_of(part)
            if kind in TEXT_PARTS and isinstance(part.get("text"), str):
                self.say(part["text"])
            elif kind == "refusal" and isinstance(part.get("refusal"), str):
                self.refusal = (self.refusal or "") + part["refusal"]
            else:
                self._leave(part, problem_of_part(part), f"{at}.content[{index}]")

    def call(self, item: Mapping[str, Any], at: str) -> None:
        """Add the call of a tool: an item of one of the types in `CALLS`."""
        kind, passed = CALLS[item["type"]]
        for field in ("call_id", "name", passed):
            if not isinstance(item.get(field), str):
                self._leave(item, "unsayable", f"{at}.{field}")
                return
        caller = item.get("caller")
        if caller is not None and kind_of(caller) != "direct":  # a program that runs at the provider
            self._leave(item, "provider_tool", f"{at}.caller")
        elif item.get("namespace") or item.get("async"):
            self._leave(item, "unsayable", f"{at}.{'namespace' if item.get('namespace') else 'async'}")
        else:
            if kind == "custom":  # in the chat form all the same, to be read; no engine of the policy knows such calls
                self._problems.append(Unsayable("unsayable", at))
            called = {"name": item["name"], passed: item[passed]}
            self.calls.append({"id": item["call_id"], "type": kind, kind: called})

    def message(self) -> dict[str, Any]:
        """The chat message; what it has no word for stands in its content as it came."""
        content: Any = self.text
        if self._unsaid:
            said = [] if self.text is None else [{"type": "text", "text": self.text}]
            content = said + self._unsaid
        message = {"role": "assistant", "content": content}
        if self.refusal is not None:
            message["refusal"] = self.refusal
        if self.calls:
            message["tool_calls"] = self.calls
        return message

    def _leave(self, value: Any, problem: Problem, at: str) -> None:
        self._unsaid.append(value)
        self._problems.append(Unsayable(problem, at))
