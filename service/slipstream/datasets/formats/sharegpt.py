"""ShareGPT's conversations as LLaMA-Factory reads them (`data/converter.py`, `data/formatter.py`).

A system message may come first; then a question (`human`, `observation`) and an answer (`gpt`, `function_call`) take
turns. `function_call` is a JSON list of names and arguments and nothing else. Ids of calls and names of participants
are not written, since no template shows them; ids are made up when a file is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from slipstream.datasets.formats.columns import Column
from slipstream.datasets.formats.normal import arguments_of, spelled
from slipstream.datasets.formats.said import Message, Said, Unsayable

SFT = {"conversations": Column.TURNS, "tools": Column.TEXT}
PREFERENCE = {"conversations": Column.TURNS, "chosen": Column.TURN, "rejected": Column.TURN, "tools": Column.TEXT}

_QUESTIONS, _ANSWERS = ("human", "observation"), ("gpt", "function_call")
_FROM = {"system": "system", "user": "human", "assistant": "gpt", "tool": "observation"}
_ROLE = {name: role for role, name in _FROM.items()}


def sft(said: Said) -> dict[str, Any]:
    return {"conversations": _turns([*said.prompt, said.answer]), "tools": _tools(said)}


def preference(said: Said) -> dict[str, Any]:
    assert said.rejected is not None
    *turns, chosen = _turns([*said.prompt, said.answer])
    return {"conversations": turns, "chosen": chosen, "rejected": _turn(said.rejected), "tools": _tools(said)}


def from_sft(line: Mapping[str, Any]) -> Said:
    *prompt, answer = _messages(line["conversations"])
    return Said(prompt, answer, _read_tools(line))


def from_preference(line: Mapping[str, Any]) -> Said:
    *prompt, answer = _messages([*line["conversations"], line["chosen"]])
    *_, rejected = _messages([*line["conversations"], line["rejected"]])
    return Said(prompt, answer, _read_tools(line), rejected)


def _turns(messages: Sequence[Message]) -> list[dict[str, str]]:
    turns = [_turn(message) for message in messages]
    after_system = turns[1:] if turns[0]["from"] == "system" else turns
    for place, turn in enumerate(after_system):
        if turn["from"] not in (_ANSWERS if place % 2 else _QUESTIONS):
            both = place and turn["from"] == after_system[place - 1]["from"] == "observation"
            raise Unsayable("several_tool_results" if both else "roles_do_not_take_turns")
    return turns


def _turn(message: Message) -> dict[str, str]:
    if "reasoning_content" in message:
        raise Unsayable("reasoning")
    if "refusal" in message:
        raise Unsayable("refusal")
    content = message.get("content", "")
    if not isinstance(content, str):
        raise Unsayable("more_than_text")
    if "tool_calls" not in message:
        return {"from": _FROM[message["role"]], "value": content}
    if content:
        raise Unsayable("text_beside_tool_calls")
    calls = [
        {"name": call["function"]["name"], "arguments": arguments_of(call["function"]["arguments"])}
        for call in message["tool_calls"]
    ]
    if not all(isinstance(call["arguments"], dict) for call in calls):
        raise Unsayable("arguments_not_an_object")
    return {"from": "function_call", "value": json.dumps(calls, ensure_ascii=False)}


def _messages(turns: Sequence[Mapping[str, str]]) -> list[Message]:
    messages: list[Message] = []
    made, waiting = 0, [""]
    for turn in turns:
        if turn["from"] == "function_call":
            calls = json.loads(turn["value"])
            waiting = [f"call_{made + number}" for number in range(1, len(calls) + 1)]
            made += len(calls)
            messages.append({"role": "assistant", "tool_calls": list(map(_call, waiting, calls))})
        elif turn["from"] == "observation":
            messages.append({"role": "tool", "content": turn["value"], "tool_call_id": waiting[0]})
        else:
            messages.append({"role": _ROLE[turn["from"]], "content": turn["value"]})
    return messages


def _call(name: str, call: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": name,
        "type": "function",
        "function": {"name": call["name"], "arguments": spelled(call["arguments"])},
    }


def _tools(said: Said) -> str:
    return json.dumps(said.tools, ensure_ascii=False) if said.tools else ""


def _read_tools(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(json.loads(line["tools"] or "[]"))
