"""Trinity-RFT's formats of messages, for its SFT and its DPO (`buffer/schema/formatter.py` of 0.6.0).

Its SFT reads messages and tools as JSON text. Its DPO reads lists, and gives no tools to the template: so a
conversation with tools is written as text, as it is put to a model whose template knows none (`slipstream/hermes.py`),
and is read back as that text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from slipstream.datasets.formats.columns import Column
from slipstream.datasets.formats.said import Message, Said, Unsayable
from slipstream.datasets.formats.templates import from_templated, templated
from slipstream.dialects import hermes

SFT = {"messages": Column.TEXT, "tools": Column.TEXT}
PREFERENCE = {"messages": Column.TEXTS, "chosen": Column.TEXTS, "rejected": Column.TEXTS}


def sft(said: Said) -> dict[str, Any]:
    return {
        "messages": json.dumps(templated(said.messages), ensure_ascii=False),
        "tools": json.dumps(said.tools, ensure_ascii=False) if said.tools else "",
    }


def preference(said: Said) -> dict[str, Any]:
    if any("reasoning_content" in message for message in said.messages):
        raise Unsayable("reasoning")
    functions = [tool["function"] for tool in said.tools]
    named_first = [{"function": {"name": function["name"], **function}} for function in functions]
    *prompt, chosen, rejected = templated(said.messages)
    return {
        "messages": hermes.rendered(prompt, named_first),
        "chosen": hermes.rendered([chosen], ()),
        "rejected": hermes.rendered([rejected], ()),
    }


def from_sft(line: Mapping[str, Any]) -> Said:
    *prompt, answer = from_templated(json.loads(line["messages"]))
    return Said(prompt, answer, list(json.loads(line["tools"] or "[]")))


def from_preference(line: Mapping[str, Any]) -> Said:
    (answer,), (rejected,) = line["chosen"], line["rejected"]
    return Said(_messages(line["messages"]), dict(answer), (), dict(rejected))


def _messages(messages: list[Message]) -> list[Message]:
    return [dict(message) for message in messages]
