"""Answers of the Messages API as chat completions, and those of the policy as messages."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic_messages import message, request, text, tool_use, user
from captured_chats import assistant, completion, tool_call
from openai.types.chat import ChatCompletion

from slipstream.dialects.form import Translator
from slipstream.dialects.messages.translator import MessagesTranslator

MESSAGES: Translator = MessagesTranslator()
THINKING = {"type": "thinking", "thinking": "Add them.", "signature": "sig"}


def chat(answer: dict[str, Any]) -> dict[str, Any]:
    """The chat form of an answer, which OpenAI's own types take."""
    _check(answer)
    form = MESSAGES.chat_form(request(), answer)
    assert form.problem is None
    ChatCompletion.model_validate(form.answer)
    return form.answer


def _check(answer: dict[str, Any]) -> None:
    from anthropic.types import Message

    Message.model_validate(answer)


def answered(policy: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The policy's completion as an answer, which Anthropic's own types take."""
    answer = MESSAGES.answer(policy, request(**fields))
    _check(answer)
    return answer


def test_an_answer_with_tools_in_the_chat_form() -> None:
    answer = message(THINKING, text("I add."), tool_use("t1", "add", a=2), tool_use("t2", "add", a=3))
    assert chat(answer) == {
        "id": "msg_01",
        "object": "chat.completion",
        "created": 0,
        "model": "claude-opus-4-6",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "I add.",
                    "reasoning_content": "Add them.",
                    "tool_calls": [tool_call("t1", "add", a=2), tool_call("t2", "add", a=3)],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {
            "prompt_tokens": 129,
            "completion_tokens": 3,
            "total_tokens": 132,
            "prompt_tokens_details": {"cached_tokens": 100},
        },
    }


def test_what_is_said_comes_back_in_the_next_request_as_the_same_message() -> None:
    answer = message(THINKING, text("It is "), text("4", citations=[]), tool_use("t1", "add", a=2, b=[1.5, "é"]))
    said = chat(answer)["choices"][0]["message"]
    told = {"role": "assistant", "content": answer["content"]}
    follow_up = MESSAGES.chat_request(request(user("2 + 2?"), told, user("so?")))
    assert follow_up["messages"][1] == {key: value for key, value in said.items() if key != "reasoning_content"}


@pytest.mark.parametrize(
    ("reason", "finish_reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("tool_use", "tool_calls"),
    ],
)
def test_the_reason_of_the_end(reason: str, finish_reason: str) -> None:
    assert chat(message(stop_reason=reason))["choices"][0]["finish_reason"] == finish_reason


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (message({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}), "provider_tool"),
        (message({"type": "web_search_tool_result", "tool_use_id": "s", "content": []}, text("x")), "provider_tool"),
        (message({"type": "mcp_tool_use", "id": "m", "name": "f", "input": {}}), "provider_tool"),
        (message(stop_reason="pause_turn"), "provider_tool"),
        (message(container={"id": "c", "expires_at": "2026-01-01T00:00:00Z"}), "provider_tool"),
        (message(tool_use("t", "f") | {"caller": {"type": "code_execution_20260120"}}), "provider_tool"),
        (message({"type": "compaction", "content": "They added."}), "unsayable"),
        (message(context_management={"applied_edits": [{"type": "clear_tool_uses_20250919"}]}), "unsayable"),
        (message(context_management={"applied_edits": [{"type": "clear_thinking_20251015"}]}), None),
        (message({"type": "fallback", "from": {}, "to": {}}, text("x")), None),
    ],
)
def test_an_answer_can_be_the_problem(answer: dict[str, Any], problem: str | None) -> None:
    form = MESSAGES.chat_form(request(), answer)
    assert form.problem == problem
    assert form.answer["id"] == "msg_01"
    assert MESSAGES.flaw(answer, request(), whole=True) is None


@pytest.mark.parametrize(
    ("answer", "flaw"),
    [
        (message(), None),
        (message(content=[]), None),
        (message(stop_reason=None), "incomplete"),
        (message(stop_reason=""), "incomplete"),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "later"}}, "no_answer"),
        (message(error={"message": "of a gateway"}), "no_answer"),
        (message(content="hello"), "no_answer"),
        (message(content=["hello"]), "no_answer"),
        ({"type": "completion", "content": [], "stop_reason": "stop_sequence"}, "no_answer"),
        ({"input_tokens": 12}, "no_answer"),
        ({}, "no_answer"),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_an_answer_that_is_not_finished_has_a_flaw(answer: dict[str, Any], flaw: str | None, whole: bool) -> None:
    assert MESSAGES.flaw(answer, request(), whole=whole) == flaw


def test_the_policys_answer_is_a_message() -> None:
    usage = {"prompt_tokens": 20, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 16}}
    policy = completion(assistant("I add.", tool_call("call_a", "add", a=1)), model="qwen", usage=usage)
    assert answered(policy) == {
        "id": "chatcmpl-1",
        "type": "message",
        "role": "assistant",
        "model": "qwen",
        "content": [text("I add."), tool_use("call_a", "add", a=1)],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 4,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 16,
            "output_tokens": 7,
        },
    }


def test_thoughts_are_for_agents_that_ask_for_them() -> None:
    policy = completion(assistant("4") | {"reasoning": "2 and 2"})
    thought = {"type": "thinking", "thinking": "2 and 2", "signature": ""}
    assert answered(policy)["content"] == [text("4")]
    assert answered(policy, thinking={"type": "disabled"})["content"] == [text("4")]
    assert answered(policy, thinking={"type": "adaptive"})["content"] == [thought, text("4")]


def test_an_empty_answer_has_a_block_of_text() -> None:
    assert answered(completion(assistant("")))["content"] == [text("")]
    assert answered(completion(assistant(None) | {"refusal": "No."}))["content"] == [text("No.")]


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", '"a"', "null", "NaN", "{'a': 1}", "[" * 2000])
def test_arguments_that_are_no_object_reach_the_agent_and_come_back_as_they_were(arguments: str) -> None:
    call = {"id": "call_a", "type": "function", "function": {"name": "add", "arguments": arguments}}
    answer = answered(completion(assistant(None, call)))
    assert answer["content"] == [tool_use("call_a", "add", INVALID_JSON=arguments)]
    again = MESSAGES.chat_request(request(user("x"), {"role": "assistant", "content": answer["content"]}, user("y")))
    assert again["messages"][1]["tool_calls"] == [call]


@pytest.mark.parametrize("arguments", ["", " ", "{}", None])
def test_no_arguments_are_an_empty_object(arguments: str | None) -> None:
    call = {"id": "call_a", "type": "function", "function": {"name": "now", "arguments": arguments}}
    assert answered(completion(assistant(None, call)))["content"] == [tool_use("call_a", "now")]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"finish_reason": "stop"}, ("end_turn", None)),
        ({"finish_reason": "length"}, ("max_tokens", None)),
        ({"finish_reason": "content_filter"}, ("refusal", None)),
        ({"finish_reason": "stop", "stop_reason": "END"}, ("stop_sequence", "END")),
        ({"finish_reason": "stop", "stop_reason": "</s>"}, ("end_turn", None)),
        ({"finish_reason": "stop", "stop_reason": 151645}, ("end_turn", None)),
    ],
)
def test_the_end_of_the_policys_answer(choice: dict[str, Any], expected: tuple[str, str | None]) -> None:
    policy = completion({}, choices=[{"index": 0, "message": assistant("a"), **choice}])
    answer = answered(policy, stop_sequences=["END"])
    assert (answer["stop_reason"], answer["stop_sequence"]) == expected


@pytest.mark.parametrize(("finish_reason", "expected"), [("stop", "tool_use"), ("length", "max_tokens")])
def test_the_end_of_an_answer_with_calls(finish_reason: str, expected: str) -> None:
    said = assistant(None, tool_call("call_a", "add"))
    policy = completion({}, choices=[{"index": 0, "message": said, "finish_reason": finish_reason}])
    assert answered(policy)["stop_reason"] == expected
