"""The chat dialect: calls that are in the chat form already, and the same answer as a stream."""

from __future__ import annotations

from typing import Any

import pytest
from captured_chats import assistant, completion, tool, tool_call, user
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from slipstream.dialects.chat import ChatTranslator
from slipstream.dialects.events import events
from slipstream.dialects.form import Translator, Unsayable
from slipstream.explorer.client import agent_request, case_request, shadow_request
from slipstream.jsontext import from_json
from slipstream.store.bodies import unpack
from slipstream.store.shadow_requests import completed, packed

CHAT: Translator = ChatTranslator()
REQUEST = {"model": "gpt-4o", "messages": [user("hi")]}
ANSWERS = {
    "text": completion(assistant("Grüße 🙂")),
    "tools": completion(assistant(None, tool_call("call_a", "add", a=1), tool_call("call_b", "add", a=2))),
    "text_and_tool": completion(assistant("I look it up.", tool_call("call_a", "find", q="x"))),
    "reasoning": completion(assistant("4") | {"reasoning_content": "2 and 2"}),
    "half_of_a_pair": completion(assistant("\ud83d")),
    "two": completion(
        {},
        choices=[
            {"index": 0, "message": assistant("a"), "logprobs": None, "finish_reason": "stop"},
            {"index": 1, "message": assistant("b"), "logprobs": None, "finish_reason": "stop"},
        ],
    ),
}


ADD, MUL = ({"type": "function", "function": {"name": name, "parameters": {}}} for name in ("add", "mul"))


def allowed(mode: str, *tools: dict[str, Any]) -> dict[str, Any]:
    """A choice among some tools, which are only named."""
    names = [{"type": tool["type"], tool["type"]: {"name": tool[tool["type"]].get("name")}} for tool in tools]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": names}}


def after_hi(message: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [user("hi"), message]}


def without_empty(value: Any) -> Any:
    """The value without nulls and empty lists: a stream does not say them."""
    if isinstance(value, dict):
        return {key: without_empty(item) for key, item in value.items() if item not in (None, [])}
    return [without_empty(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_is_streamed_is_put_together_as_it_was(name: str) -> None:
    body = b"".join(CHAT.stream(ANSWERS[name]))
    assert without_empty(CHAT.assemble(body, REQUEST)) == without_empty(ANSWERS[name])


@pytest.mark.parametrize("name", ["text", "tools", "text_and_tool", "two"])
def test_the_vendors_sdk_reads_the_stream(name: str) -> None:
    state = ChatCompletionStreamState()
    for _, data in events(b"".join(CHAT.stream(ANSWERS[name]))):
        if data != b"[DONE]":
            chunk = from_json(data)[0]
            assert chunk["choices"], "many clients read choices[0] of each chunk"
            state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    whole = ChatCompletion.model_validate(ANSWERS[name])
    read = state.get_final_completion()
    assert [choice.finish_reason for choice in read.choices] == [choice.finish_reason for choice in whole.choices]
    for choice, expected in zip(read.choices, whole.choices, strict=True):
        assert choice.message.content == expected.message.content
        said, wanted = (
            [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or []]
            for message in (choice.message, expected.message)
        )
        assert said == wanted


def test_a_call_is_its_own_chat_form() -> None:
    request = {"model": "gpt-4o", "messages": [user("2 + 2?"), tool("call_a", "4")], "tools": [{"type": "function"}]}
    answer = ANSWERS["text"]
    assert CHAT.chat_form(request, answer) == (request, answer, None)
    assert CHAT.chat_request(request) == request
    assert CHAT.answer(answer, request) == answer
    assert CHAT.history(request) is None


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"messages": [user([{"type": "text", "text": "hi"}])]}, None),
        ({"messages": [user([{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}])]}, "media"),
        ({"messages": [user([{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}])]}, "media"),
        ({"messages": [user([{"type": "text", "text": "a"}, {"type": "file", "file": {}}])]}, "media"),
        ({"messages": [assistant() | {"audio": {"id": "audio_1"}}, user("hi")]}, "media"),
        ({"modalities": ["text", "audio"], "audio": {"voice": "alloy"}}, "media"),
        ({"modalities": ["image", "text"]}, "media"),
        ({"modalities": ["text"], "audio": None}, None),
        ({"functions": [{"name": "add"}], "function_call": "auto"}, "unsayable"),
        ({"functions": None, "function_call": None}, None),
        ({"messages": [user("2?"), assistant() | {"function_call": {"name": "f", "arguments": ""}}]}, "unsayable"),
        ({"messages": [user("2?"), assistant("4") | {"function_call": None}, user("3?")]}, None),
        ({"messages": [user("2?"), {"role": "function", "name": "add", "content": "4"}]}, "unsayable"),
        ({"tools": [ADD, {"type": "custom", "custom": {"name": "sql"}}]}, "unsayable"),
        ({"tools": [ADD], "tool_choice": {"type": "custom", "custom": {"name": "sql"}}}, "unsayable"),
        ({"messages": [user("2?"), assistant(None, {"id": "c", "type": "custom", "custom": {}})]}, "unsayable"),
        ({"tools": [ADD, MUL], "tool_choice": allowed("auto", MUL)}, None),
        ({"tools": [ADD], "tool_choice": allowed("auto", ADD, MUL)}, "unsayable"),
        ({"tools": [ADD], "tool_choice": allowed("auto", {"type": "custom", "custom": {}})}, "unsayable"),
        ({"tools": [ADD], "tool_choice": allowed("some", ADD)}, "unsayable"),
        ({"tools": [ADD], "tool_choice": allowed("auto")}, "unsayable"),
        ({"tool_choice": {"type": "allowed_tools"}}, "unsayable"),
        ({"tools": [{"function": {"name": "add"}}]}, None),
        ({"tools": [{"type": "web_search"}]}, "provider_tool"),
        ({"tools": [{"googleSearch": {}}]}, "provider_tool"),
        ({"web_search_options": {}}, "provider_tool"),
        ({"web_search_options": None, "tools": None}, None),
    ],
)
def test_what_the_policy_cannot_be_asked_is_a_problem(fields: dict[str, Any], problem: str | None) -> None:
    assert CHAT.chat_form(REQUEST | fields, ANSWERS["text"]).problem == problem


@pytest.mark.parametrize(
    ("fields", "problem", "at"),
    [
        (after_hi(user([{"type": "text", "text": "a"}, {"type": "image_url"}])), "media", "messages[1].content[1]"),
        (after_hi(tool("call_a", "4") | {"content": [{"type": "video_url"}]}), "media", "messages[1].content[0]"),
        (after_hi(assistant() | {"audio": {"id": "audio_1"}}), "media", "messages[1].audio"),
        (after_hi(assistant("", {"type": "custom"})), "unsayable", "messages[1].tool_calls[0]"),
        (after_hi(assistant() | {"function_call": {"name": "f"}}), "unsayable", "messages[1].function_call"),
        (after_hi({"role": "function", "content": "4"}), "unsayable", "messages[1].role"),
        ({"modalities": ["text", "audio"]}, "media", "modalities"),
        ({"audio": {"voice": "alloy"}}, "media", "audio"),
        ({"functions": [{"name": "f"}]}, "unsayable", "functions"),
        ({"function_call": "auto"}, "unsayable", "function_call"),
        ({"tools": [ADD, {"type": "custom"}]}, "unsayable", "tools[1]"),
        ({"tools": [{"type": "web_search"}]}, "provider_tool", "tools[0]"),
        ({"plugins": [{"id": "web"}]}, "provider_tool", "plugins"),
        ({"tools": [ADD], "tool_choice": allowed("auto", MUL)}, "unsayable", "tool_choice"),
    ],
)
def test_the_policy_is_not_asked_what_it_cannot_be_and_the_place_is_told(
    fields: dict[str, Any], problem: str, at: str
) -> None:
    with pytest.raises(Unsayable) as refused:
        CHAT.chat_request(REQUEST | fields)
    assert (refused.value.problem, refused.value.at) == (problem, at)


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_the_policy_is_shown_the_allowed_tools_alone(mode: str) -> None:
    asked = REQUEST | {"tools": [ADD, MUL], "tool_choice": allowed(mode, MUL), "n": 2, "stream": True}
    of_agent = agent_request(asked)
    assert of_agent == {"messages": [user("hi")], "tools": [MUL], "tool_choice": mode, "n": 2, "stream": True}
    repeated = shadow_request(asked, "policy")
    assert (repeated["tools"], repeated["tool_choice"]) == ([MUL], mode)
    assert completed(unpack(packed(repeated, asked)), asked) == repeated


THOUGHT, SAID = {"type": "thinking", "thinking": "2 and 2"}, {"type": "text", "text": "4"}


@pytest.mark.parametrize(
    ("thought", "content"),
    [
        ({"reasoning_content": "2 and 2"}, "4"),
        ({"reasoning": "2 and 2", "reasoning_details": [{"type": "reasoning.text", "text": "2 and 2"}]}, "4"),
        ({"thinking_blocks": [THOUGHT]}, "4"),
        ({"content": [THOUGHT, SAID]}, [SAID]),
        ({"content": [THOUGHT]}, ""),
    ],
)
def test_the_policy_is_not_shown_what_another_model_thought(thought: dict[str, Any], content: Any) -> None:
    before, answered, after = user("2 and 2?"), assistant("4"), user("sure?")
    asked = REQUEST | {"messages": [before, answered | thought, after]}
    repeated = shadow_request(asked, "policy")
    assert repeated["messages"] == [before, answered | {"content": content}, after]
    stored = packed(repeated, asked)
    assert completed(unpack(stored), asked) == repeated
    assert "messages" not in unpack(stored), "those of its call are stored once"
    for sent in (agent_request(asked), case_request(asked, "policy")):  # as an agent would send them
        assert sent["messages"] == asked["messages"]


@pytest.mark.parametrize(
    ("answer", "whole", "flaw"),
    [
        (ANSWERS["text"], True, None),
        (ANSWERS["text"], False, None),
        (completion({}, choices=[{"index": 0, "message": assistant("a")}]), True, None),
        (completion({}, choices=[{"index": 0, "message": assistant("a")}]), False, "incomplete"),
        ({"choices": []}, True, "no_answer"),
        ({"choices": [{"finish_reason": "stop"}]}, True, "no_answer"),
        ({"error": {"message": "no"}}, True, "no_answer"),
    ],
)
def test_an_answer_that_is_not_finished_has_a_flaw(answer: dict[str, Any], whole: bool, flaw: str | None) -> None:
    assert CHAT.flaw(answer, REQUEST, whole=whole) == flaw


def test_fewer_choices_than_were_asked_for_are_incomplete_unless_the_answer_came_to_its_end() -> None:
    assert CHAT.flaw(ANSWERS["text"], REQUEST | {"n": 2}, whole=False) == "incomplete"
    assert CHAT.flaw(ANSWERS["two"], REQUEST | {"n": 2}, whole=False) is None


@pytest.mark.parametrize(
    ("asked", "is_request"), [(REQUEST, True), ({"messages": []}, False), ({"messages": ["hi"]}, False), ({}, False)]
)
def test_a_request_has_messages(asked: dict[str, Any], is_request: bool) -> None:
    assert CHAT.is_request(asked) == is_request


def test_an_error_is_in_openais_form() -> None:
    assert CHAT.error(400, "no", "bad", "messages") == {
        "error": {"message": "no", "type": "invalid_request_error", "code": "bad", "param": "messages"}
    }
    assert CHAT.error(503, "later", None, None)["error"]["type"] == "server_error"
