"""Dialogs of an agent, as a list of turns or as a text with tags, made into messages and rows.

In a text, `<think>...</think>` is a thought, `<tool_call>...</tool_call>` a call (a JSON object with `name` and
`arguments`, or a tool's name alone), and `<tool_result>...</tool_result>` the result of the next call without one. What
stands outside of tags is said to the user.

Each answer of the assistant becomes a row of its own, whose prompt is everything before it: a tool's result is read by
the model and never taught to it. A thought stays in the text of its message, in its tags, as the templates of reasoning
models render it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from slipstream.datasets.row import Kind, Message, Provenance, Row
from slipstream.errors import SlipstreamError
from slipstream.trajectory import message_text, message_tool_calls

_TAG = re.compile(r"<(/?)(think|tool_call|tool_result)>")
_THINK, _THOUGHT = "<think>", "</think>"

Role = Literal["system", "user", "assistant", "tool"]


class DialogError(SlipstreamError):
    """A dialog cannot be read; names the turn or the place in the text."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a dialog.

    Attributes:
        content: its text. Of an assistant it may have tags.
        tool_id, arguments, result: of a turn of a tool: its name, and the call and the result of it.
    """

    role: Role
    content: str = ""
    tool_id: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    result: str | None = None


@dataclass(frozen=True, slots=True)
class Dialog:
    """A dialog of a user and an agent.

    Attributes:
        turns: at least one of a user and one of an assistant.
        target_tools: names of the tools that are the right ones.
        tools: that the agent may call, in OpenAI's form.
        metadata: `task_type` names the task, and `loss` is one that was measured before.
        dialog_id: names it in errors, and its session.
    """

    turns: Sequence[Turn]
    target_tools: Sequence[str] = ()
    tools: Sequence[Mapping[str, Any]] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    dialog_id: str = ""


def messages_of(dialog: Dialog) -> list[Message]:
    """Return the dialog as chat messages.

    An assistant's text before a tool's turn is the thought that led to the call. A text that has tags says itself what
    it is.

    Raises:
        DialogError: a turn cannot be read.
    """
    found: list[dict[str, Any]] = []
    for place, turn in enumerate(dialog.turns):
        where = f"dialog {dialog.dialog_id or '?'}: turn {place}"
        if turn.role == "tool":
            _add_tool(found, turn, where)
        elif turn.role == "assistant":
            acts = place + 1 < len(dialog.turns) and dialog.turns[place + 1].role == "tool"
            tagged = _TAG.search(turn.content) is not None
            text = f"<think>{turn.content}</think>" if acts and turn.content and not tagged else turn.content
            found += messages_of_text(text, where) if text else [{"role": "assistant", "content": ""}]
        elif turn.role in ("user", "system"):
            found.append({"role": turn.role, "content": turn.content})
        else:
            raise DialogError(f"{where}: role: expected system, user, assistant or tool, found {turn.role!r}")
    return [message for message in found if message["role"] != "assistant" or message["content"] or _calls(message)]


def messages_of_text(text: str, where: str = "text") -> list[dict[str, Any]]:
    """Return an agent's text with tags as messages of the assistant and of tools.

    Args:
        where: names the text in errors.

    Raises:
        DialogError: a tag is not closed or not opened, a call cannot be read, or a result has no call.
    """
    found: list[dict[str, Any]] = []
    waiting: list[str] = []  # ids of calls without a result
    for tag, body, at in _parts(text, where):
        if tag == "tool_result":
            if not waiting:
                raise DialogError(f"{where}: character {at}: expected a <tool_call> before <tool_result>")
            found.append({"role": "tool", "tool_call_id": waiting.pop(0), "content": body.strip()})
            continue
        if not found or found[-1]["role"] == "tool":
            found.append({"role": "assistant", "content": ""})
        message = found[-1]
        if tag == "tool_call":
            calls = message.setdefault("tool_calls", [])
            calls.append(_tool_call(body, len(calls), f"{where}: character {at}"))
            waiting.append(calls[-1]["id"])
        else:
            said = f"<think>{body}</think>" if tag == "think" else body.strip()
            message["content"] = "\n".join(filter(None, [message["content"], said]))
    return found


def tagged(messages: Sequence[Message]) -> str:
    """Return the messages of assistant and tools as a text with tags; others are left out."""
    parts: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            parts.append(f"<tool_result>{message_text(message)}</tool_result>")
        elif message["role"] == "assistant":
            parts += filter(None, [message_text(message)])
            for call in message_tool_calls(message):
                function = call["function"]
                arguments = json.loads(function["arguments"])
                body = json.dumps({"name": function["name"], "arguments": arguments}, ensure_ascii=False)
                parts.append(f"<tool_call>{body}</tool_call>")
    return "\n".join(parts)


def thoughts_of(text: str) -> list[str]:
    """Return the thoughts in a text, without their tags."""
    return [thought.strip() for thought, _ in _split(text) if thought]


def without_thoughts(text: str) -> str:
    """Return what a text says beside its thoughts."""
    return "".join(said for _, said in _split(text)).strip()


def rows_of(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], provenance: Provenance) -> list[Row]:
    """Return a supervised row for each answer of the assistant that has something before it."""
    return [
        Row(Kind.SFT, list(messages[:place]), message, provenance, tools)
        for place, message in enumerate(messages)
        if message["role"] == "assistant" and place
    ]


def _split(text: str) -> Iterator[tuple[str, str]]:
    """(thought, what is said after it) of each thought, the first of none. In a time in proportion to the text, which a
    pattern would not take for a text of `<think>` again and again."""
    begin, thought = 0, ""
    while (opened := text.find(_THINK, begin)) >= 0 and (closed := text.find(_THOUGHT, opened)) >= 0:
        yield thought, text[begin:opened]
        begin, thought = closed + len(_THOUGHT), text[opened + len(_THINK) : closed]
    yield thought, text[begin:]


def _parts(text: str, where: str) -> list[tuple[str, str, int]]:
    """(tag or "", text, place) of each part that is not empty."""
    found: list[tuple[str, str, int]] = []
    opened: tuple[str, int] | None = None
    begin = 0
    for match in _TAG.finditer(text):
        closes, tag = bool(match[1]), match[2]
        if opened is None and closes:
            raise DialogError(f"{where}: character {match.start()}: expected <{tag}> before </{tag}>")
        if opened is None or (closes and tag == opened[0]):
            found.append((opened[0] if opened else "", text[begin : match.start()], begin))
            opened, begin = None if closes else (tag, match.start()), match.end()
        # else: a tag within another one is its text
    if opened is not None:
        raise DialogError(f"{where}: character {opened[1]}: expected </{opened[0]}> after <{opened[0]}>")
    found.append(("", text[begin:], begin))
    return [part for part in found if part[0] or part[1].strip()]


def _tool_call(body: str, place: int, where: str) -> dict[str, Any]:
    body = body.strip()
    name: Any = body
    arguments: Any = {}
    if body.startswith("{"):
        try:
            read = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise DialogError(f"{where}: tool_call: expected JSON: {error}") from error
        name, arguments = read.get("name"), read.get("arguments", {})
    if not isinstance(name, str) or not name or not isinstance(arguments, Mapping):
        raise DialogError(f"{where}: tool_call: expected a tool's name, or an object with name and arguments")
    return called(name, arguments, place)


def called(name: str, arguments: Mapping[str, Any], place: int = 0) -> dict[str, Any]:
    """Return a tool call in OpenAI's form, with an id by its place in its message."""
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": f"call_{place}", "type": "function", "function": function}


def _add_tool(found: list[dict[str, Any]], turn: Turn, where: str) -> None:
    if not turn.tool_id:
        raise DialogError(f"{where}: tool_id: expected the tool's name, found {turn.tool_id!r}")
    if not found or found[-1]["role"] != "assistant" or _calls(found[-1]):
        found.append({"role": "assistant", "content": ""})
    found[-1]["tool_calls"] = [called(turn.tool_id, turn.arguments)]
    found.append({"role": "tool", "tool_call_id": "call_0", "content": turn.result or turn.content})


def _calls(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return message_tool_calls(message)
