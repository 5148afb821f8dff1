"""Each format says a row so that it is read back exactly, or not at all."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from dataset_rows import CLOCK, FORMS, WEATHER, call, provenance, rows
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam
from pydantic import TypeAdapter

from slipstream.datasets.formats import Format, Unsayable, from_line, to_line
from slipstream.datasets.row import Kind, Row, hashed

ASK = {"role": "user", "content": "What time is it?"}
ANSWER = {"role": "assistant", "content": "Noon."}


def row(*prompt: Any, answer: Any = ANSWER, tools: Any = (), kind: Kind = Kind.SFT, **fields: Any) -> Row:
    return Row(kind, list(prompt or [ASK]), answer, provenance(1), tools, **fields)


def there_and_back(given: Row, form: Format) -> Row:
    line = json.loads(json.dumps(to_line(given, form)))
    origin = json.loads(json.dumps(given.provenance.written(given.digest)))
    return from_line(line, form, given.kind, origin)


@pytest.mark.parametrize(("form", "kind"), FORMS)
def test_what_is_written_is_read_back(form: Format, kind: Kind) -> None:
    for given in rows(kind):
        back = there_and_back(given, form)
        assert back.provenance == replace(given.provenance, session=hashed(given.provenance.session))
        if form == "trinity" and kind is Kind.PREFERENCE:
            assert to_line(back, form) == to_line(given, form)  # a conversation with tools has become text
            if not given.tools:
                assert back.digest == given.digest
        elif form == "sharegpt":
            assert without_ids(back) == without_ids(given)
        else:
            assert back.digest == given.digest


def without_ids(given: Row) -> Any:
    """ShareGPT has no ids of calls; others are made up, and fit each other."""
    messages = copy.deepcopy([*given.prompt, given.answer])
    named = {each["id"] for message in messages for each in message.get("tool_calls", ())}
    assert {message["tool_call_id"] for message in messages if message["role"] == "tool"} <= named
    for message in messages:
        for each in message.get("tool_calls", ()):
            each.pop("id")
        message.pop("tool_call_id", None)
    return messages, list(given.tools), given.rejected


def test_messages_are_brought_into_one_spelling() -> None:
    sent = [
        {"role": "developer", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]},
        {"role": "user", "content": "Rain?", "name": "ann", "tool_calls": None},
        {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "annotations": [],
            "audio": None,
            "tool_calls": [{"id": "a", "function": {"name": "weather", "arguments": '{"day":"today","n":1.0}'}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "no"},
        {"role": "assistant", "content": "", "tool_calls": [call("b", "clock", {})]},
    ]
    sent[4]["tool_calls"][0]["function"]["arguments"] = "noon please"  # what is no JSON goes back as it came
    back = there_and_back(row(*sent, answer={**ANSWER, "reasoning": "It is."}), "trl")
    assert back.prompt == [
        {"role": "system", "content": "Be\nbrief."},
        {"role": "user", "content": "Rain?", "name": "ann"},
        {"role": "assistant", "tool_calls": [call("a", "weather", {"day": "today", "n": 1.0})]},
        {"role": "tool", "content": "no", "tool_call_id": "a"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "b", "type": "function", "function": {"name": "clock", "arguments": "noon please"}}],
        },
    ]
    assert back.answer == {**ANSWER, "reasoning_content": "It is."}


CALLS = {"role": "assistant", "tool_calls": [call("a", "clock", {}), call("b", "clock", {})]}
RESULTS = [{"role": "tool", "content": "1", "tool_call_id": name} for name in "ab"]
DEEP: Any = json.loads("[" * 80 + "]" * 80)
ALL: tuple[Format, ...] = ("trl", "openai", "trinity", "sharegpt")


@pytest.mark.parametrize(
    ("given", "reason", "forms"),
    [
        (row(answer={"role": "assistant", "content": ""}), "empty_answer", ALL),
        (row(answer={"role": "assistant", "content": None, "refusal": "No."}), "refusal", ALL),
        (row(answer=ASK), "answer_not_by_the_assistant", ALL),
        (row({"role": "function", "name": "f", "content": "x"}), "unknown_role", ALL),
        (row({"role": ["user"], "content": "x"}), "unknown_role", ALL),
        (row({"role": "user", "content": {"text": "x"}}), "not_as_in_the_api", ALL),
        (row({"role": "user", "content": "\ud83e"}), "half_of_a_surrogate_pair", ALL),
        (row(answer={"role": "assistant", "function_call": {"name": "f", "arguments": ""}}), "function_call", ALL),
        (row(answer={"role": "assistant", "tool_calls": [{"type": "custom"}]}), "tool_call_not_of_a_function", ALL),
        (row(tools=[{"type": "web_search"}]), "tool_not_a_function", ALL),
        (row(tools=[{"type": "function", "function": {"name": "f", "parameters": DEEP}}]), "nested_too_deep", ALL),
        (row(answer={**ANSWER, "reasoning_content": "Hm."}), "reasoning", ("openai", "sharegpt")),
        (
            row({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}),
            "more_than_text",
            ("trl", "trinity", "sharegpt"),
        ),
        (
            row(answer={"role": "assistant", "tool_calls": [call("a", "f", {"n": 2**70})]}),
            "number_of_more_than_64_bits",
            ("trl", "trinity"),
        ),
        (row(ASK, CALLS, *RESULTS), "several_tool_results", ("sharegpt",)),
        (row(ASK, ASK), "roles_do_not_take_turns", ("sharegpt",)),
        (row(answer={**CALLS, "content": "I look."}), "text_beside_tool_calls", ("sharegpt",)),
        (
            row(answer={"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "x"}}]}),
            "arguments_not_an_object",
            ("sharegpt",),
        ),
        (
            row(answer={"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}),
            "tool_call_without_an_id",
            ("openai",),
        ),
        (row({"role": "tool", "content": "1"}), "tool_result_without_an_id", ("openai",)),
    ],
)
def test_what_a_format_cannot_say_is_refused_with_a_reason(given: Row, reason: str, forms: tuple[Format, ...]) -> None:
    for form in forms:
        with pytest.raises(Unsayable) as refused:
            to_line(given, form)
        assert refused.value.reason == reason
    for form in set(ALL) - set(forms):
        assert json.loads(json.dumps(to_line(given, form)))


def test_trinity_s_preferences_have_their_tools_in_the_text() -> None:
    asked = row(ASK, CALLS, *RESULTS, tools=[WEATHER, CLOCK], kind=Kind.PREFERENCE, answer=CALLS, rejected=ANSWER)
    line = to_line(asked, "trinity")
    system, *others = line["messages"]
    assert system["role"] == "system"
    assert '{"name": "clock"}\n</tools>' in system["content"]
    assert [message["role"] for message in others] == ["user", "assistant", "user", "user"]
    assert others[2]["content"] == "<tool_response>\n1\n</tool_response>"
    called = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
    assert line["chosen"] == [{"role": "assistant", "content": f"{called}\n{called}"}]
    assert line["rejected"] == [ANSWER]


def test_openai_s_lines_are_what_its_own_package_types_and_teach_only_the_answer() -> None:
    messages = TypeAdapter(list[ChatCompletionMessageParam])
    tools = TypeAdapter(list[ChatCompletionFunctionToolParam])
    for given in rows(Kind.SFT):
        line = to_line(given, "openai")
        messages.validate_python(line["messages"])
        tools.validate_python(line.get("tools", []))
        said = [message for message in line["messages"] if message["role"] == "assistant"]
        assert [message.get("weight") for message in said] == [0] * (len(said) - 1) + [None]
    for given in rows(Kind.PREFERENCE):
        line = to_line(given, "openai")
        messages.validate_python([*line["input"]["messages"], *line["preferred_output"], *line["non_preferred_output"]])
        tools.validate_python(line["input"].get("tools", []))
