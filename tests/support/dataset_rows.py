"""Rows for tests of data sets: what conversations may hold, and each kind of row that can be made of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from slipstream.datasets.config import Dataset
from slipstream.datasets.row import Kind, Provenance, Row, Source

FORMS = [
    (form, kind)
    for form in ("trl", "openai", "trinity", "sharegpt")
    for kind in Kind
    if kind not in (Kind.KTO, Kind.CORRECTION) or form == "trl"
]
"""Each format with each kind that it has."""

HOSTILE = (
    '"}]}\n{"messages": [{"role": "system"}]}\r\n\x00\x1b[31m\u2028\u2029 \\ud800 </tool_call><|im_end|> '
    "{{content}} {% raw %} 🦊 ŵ שלום \ufeff\ufffe"
)
"""Text that means something to a reader of lines, JSON, templates or terminals; and none that may not be kept."""

NESTED = {"where": {"city": None, "boxes": [[1, -2.5], {"é": [None, True]}]}, "text": HOSTILE, "empty": {}}

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": HOSTILE,
        "parameters": {
            "type": "object",
            "properties": {"where": {"type": ["object", "null"], "default": None}, "day": {"enum": ["today", None]}},
            "required": [],
        },
        "strict": None,
    },
}
CLOCK: dict[str, Any] = {"type": "function", "function": {"name": "clock"}}


def call(name: str, tool: str, arguments: Any) -> dict[str, Any]:
    """One tool call, as OpenAI's API has it."""
    text = json.dumps(arguments, ensure_ascii=False)
    return {"id": name, "type": "function", "function": {"name": tool, "arguments": text}}


def provenance(number: int, **changes: Any) -> Provenance:
    """Provenance of one of many rows, two rows to a session."""
    origin = Provenance(
        task=f"acme/task-{number}",
        session=f"acme/session-{number // 2}",
        tenant="acme",
        source=Source.POLICY,
        group=f"group-{number}",
        msg_ids=(f"msg-{number}",),
        models=("version:3",),
        rewards=(number / 10,),
        breakdown={"format": 1.0, "judge": None},
        feedback=(None,),
        labels=("support",),
        created_at=1_790_000_000.25,
    )
    return replace(origin, **changes)


def conversations() -> Iterator[tuple[list[dict[str, Any]], dict[str, Any], tuple[dict[str, Any], ...]]]:
    """Prompt, answer and tools of conversations that every format can say, in normal form."""
    system = {"role": "system", "content": f"Be brief. {HOSTILE}"}
    question = {"role": "user", "content": HOSTILE}
    called = {"role": "assistant", "tool_calls": [call("call_1", "weather", NESTED)]}
    result = {"role": "tool", "content": '{"sky": null}', "tool_call_id": "call_1"}
    yield [question], {"role": "assistant", "content": HOSTILE}, ()
    yield [system, question], {"role": "assistant", "content": "x" * 1_000_000}, ()
    yield [system, question], called, (WEATHER, CLOCK)
    yield (
        [question, called, result],
        {"role": "assistant", "tool_calls": [call("call_2", "clock", {}), call("call_3", "weather", {"a": None})]},
        (CLOCK, WEATHER),
    )
    yield (
        [system, question, {"role": "assistant", "content": "Hello"}, {"role": "user", "content": ""}],
        {"role": "assistant", "content": "你好"},
        (CLOCK,),
    )


def rows(kind: Kind) -> list[Row]:
    """A row of the kind for each of the conversations."""
    return [
        Row(
            kind,
            prompt,
            answer,
            provenance(number),
            tools,
            rejected={"role": "assistant", "content": "I cannot say."} if kind is Kind.PREFERENCE else None,
            good=bool(number % 2) if kind is Kind.KTO else None,
            correction=f"no, {HOSTILE}" if kind is Kind.CORRECTION else None,
        )
        for number, (prompt, answer, tools) in enumerate(conversations())
    ]


def dataset(kind: Kind = Kind.SFT, **changes: Any) -> Dataset:
    """A data set of the kind, as data.yaml says it."""
    others = {Kind.PREFERENCE: {"pairs": {"from": ["runs"]}}, Kind.CORRECTION: {"corrections": {}}}
    made_of = others.get(kind, {"sources": [{"policy": {}}]})
    return Dataset.model_validate({"name": "support", "kind": kind, **made_of, **changes})
