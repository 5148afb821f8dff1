"""OpenAI's fine-tuning formats (platform.openai.com/docs/guides/fine-tuning): chat, and preference.

Of a conversation, OpenAI trains every assistant message whose `weight` is not 0; of ours only the last is taught.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from slipstream.datasets.formats.columns import Column
from slipstream.datasets.formats.said import Message, Said, Unsayable

SFT = {"messages": Column.JSONS, "tools": Column.JSONS}
PREFERENCE = {"input": Column.JSON, "preferred_output": Column.JSONS, "non_preferred_output": Column.JSONS}


def sft(said: Said) -> dict[str, Any]:
    _check(said.messages)
    prompt = [{**message, "weight": 0} if message["role"] == "assistant" else message for message in said.prompt]
    return {"messages": [*prompt, said.answer], **_tools(said)}


def preference(said: Said) -> dict[str, Any]:
    _check(said.messages)
    return {
        "input": {"messages": list(said.prompt), **_tools(said)},
        "preferred_output": [said.answer],
        "non_preferred_output": [said.rejected],
    }


def from_sft(line: Mapping[str, Any]) -> Said:
    *prompt, answer = ({key: item for key, item in message.items() if key != "weight"} for message in line["messages"])
    return Said(prompt, answer, list(line.get("tools") or ()))


def from_preference(line: Mapping[str, Any]) -> Said:
    (answer,), (rejected,) = line["preferred_output"], line["non_preferred_output"]
    given = line["input"]
    return Said(list(given["messages"]), answer, list(given.get("tools") or ()), rejected)


def _check(messages: Iterable[Message]) -> None:
    for message in messages:
        if "reasoning_content" in message:
            raise Unsayable("reasoning")
        if any("id" not in call for call in message.get("tool_calls", ())):
            raise Unsayable("tool_call_without_an_id")
        if message["role"] == "tool" and "tool_call_id" not in message:
            raise Unsayable("tool_result_without_an_id")


def _tools(said: Said) -> dict[str, Any]:
    return {"tools": list(said.tools)} if said.tools else {}
