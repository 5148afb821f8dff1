"""Turns of a conversation as chat messages.

The API combines messages of one role that follow each other, so they are one chat message. One turn of the user is
several chat messages if it has results of tools: those come first, whatever the order of the blocks, since models are
trained on results that follow their calls, and engines refuse anything else.

Several blocks of text are one string, which every chat template renders in the same way. Blocks of a user, of a system
prompt and of a tool's result are pieces of their own (a reminder, a file, a question), and a newline is between them:
vLLM puts one there too where a chat message has several text parts. Blocks of an answer are one text that citations
and thoughts have cut into pieces, and are joined as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from slipstream.dialects.messages.blocks import SILENT, arguments_of, kind_of, problem_of, text_of
from slipstream.dialects.messages.findings import Findings

_ATTRIBUTION = "x-anthropic-billing-header:"
"""The begin of a line that Claude Code puts before its system prompt: who pays, and a hash that differs in each
request. No model is to read it."""


class _Block(NamedTuple):
    at: str
    value: Any


def chat_messages(system: Any, messages: Sequence[Mapping[str, Any]], found: Findings) -> list[dict[str, Any]]:
    """The chat messages of a conversation; none where nothing but an empty system message is said.

    Args:
        system: text or blocks; None if there are none.
    """
    said: list[dict[str, Any]] = []
    spoken: list[tuple[Any, str, Any]] = [("system", "system", system)] if system else []
    spoken += [
        (message.get("role"), f"messages[{place}].content", message.get("content"))
        for place, message in enumerate(messages)
    ]
    for role, group in groupby(spoken, lambda each: each[0]):
        blocks = [block for _, at, content in group for block in _blocks(content, at)]
        if role == "user":
            said += _user_messages(blocks, found)
        elif role == "assistant":
            said.append(_assistant_message(blocks, found))
        elif role == "system":
            content = _content(_without_attribution(blocks), found)
            said += [{"role": "system", "content": content}] if content else []
        else:
            found.add("unsayable", blocks[0].at.partition(".")[0] + ".role" if blocks else "messages")
            said.append({"role": role, "content": [block.value for block in blocks]})
    return said


def assistant_message(content: Any, found: Findings) -> dict[str, Any]:
    """The chat message of an answer's blocks."""
    return _assistant_message(_blocks(content, "content"), found)


def _blocks(content: Any, at: str) -> list[_Block]:
    if isinstance(content, str):
        return [_Block(at, {"type": "text", "text": content})]
    if isinstance(content, list):
        return [_Block(f"{at}[{place}]", block) for place, block in enumerate(content)]
    return [] if content is None else [_Block(at, content)]


def _user_messages(blocks: Iterable[_Block], found: Findings) -> list[dict[str, Any]]:
    results, others = [], []
    for block in blocks:
        if kind_of(block.value) == "tool_result":
            results.append(_tool_message(block, found))
        else:
            others.append(block)
    if others or not results:
        results.append({"role": "user", "content": _content(others, found)})
    return results


def _tool_message(block: _Block, found: Findings) -> dict[str, Any]:
    result = block.value
    content = _content(_blocks(result.get("content"), f"{block.at}.content"), found)
    if not content and result.get("is_error"):
        content = "Error"  # a chat message has no other way to say that a tool failed
    return {"role": "tool", "tool_call_id": result.get("tool_use_id"), "content": content}


def _assistant_message(blocks: Iterable[_Block], found: Findings) -> dict[str, Any]:
    parts, calls = [], []
    unsaid = False
    for at, block in blocks:
        kind = kind_of(block)
        if kind == "tool_use":
            _check_caller(block, at, found)
            function = {"name": block.get("name"), "arguments": arguments_of(block.get("input"))}
            calls.append({"id": block.get("id"), "type": "function", "function": function})
        elif kind == "text" and isinstance(block.get("text"), str):
            parts.append({"type": "text", "text": block["text"]})
        elif kind not in SILENT:
            found.add(problem_of(block), at)
            parts.append(block)
            unsaid = True
    text = parts if unsaid else "".join([part["text"] for part in parts])
    message = {"role": "assistant", "content": text or (None if calls else "")}
    return message | {"tool_calls": calls} if calls else message


def _check_caller(tool_use: Mapping[str, Any], at: str, found: Findings) -> None:
    """Find a tool call that the model has not made by itself, or of a tool of which only the provider has the form."""
    if kind_of(tool_use.get("caller")) not in ("", "direct"):
        found.add("provider_tool", f"{at}.caller")  # code that the provider ran
    if tool_use.get("toolset_name"):
        found.add("unsayable", f"{at}.toolset_name")


def _content(blocks: Iterable[_Block], found: Findings) -> str | list[Any]:
    """The text of blocks; a list of what came, if there is more to it."""
    parts = []
    unsaid = False
    for at, block in blocks:
        text = text_of(block)
        if text is not None:
            parts.append({"type": "text", "text": text})
        elif kind_of(block) not in SILENT:
            found.add(problem_of(block), at)
            parts.append(block)
            unsaid = True
    return parts if unsaid else "\n".join([part["text"] for part in parts if part["text"]])


def _without_attribution(blocks: Iterable[_Block]) -> Iterable[_Block]:
    for block in blocks:
        text = text_of(block.value)
        if text is None or not text.startswith(_ATTRIBUTION):
            yield block
        elif rest := text.partition("\n")[2]:
            yield _Block(block.at, {"type": "text", "text": rest})
