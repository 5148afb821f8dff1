"""Responses as chat completions, and those that are none."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.chat import ChatCompletion

from slipstream.dialects.body import Reason
from slipstream.dialects.form import ChatForm, Problem
from slipstream.dialects.responses.translator import ResponsesTranslator

RESPONSES = ResponsesTranslator()
TEXT = {"type": "output_text", "text": "Hello.", "annotations": [], "logprobs": []}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "call_1",
    "name": "add",
    "arguments": '{"a": 1}',
}
THOUGHT = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "secret thought"}]}


def message(*parts: Any) -> dict[str, Any]:
    return {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [*parts]}


def response(*output: Any, **fields: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_750_000_000.5,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "gpt-5-2025-08-07",
        "output": [*output],
        "usage": {
            "input_tokens": 30,
            "input_tokens_details": {"cached_tokens": 10},
            "output_tokens": 12,
            "output_tokens_details": {"reasoning_tokens": 5},
            "total_tokens": 42,
        },
    } | fields


def form(answer: dict[str, Any]) -> ChatForm:
    assert RESPONSES.flaw(answer, {}, whole=True) is None
    return RESPONSES.chat_form({"input": "hi"}, answer)


def test_an_answer_is_a_whole_chat_completion_without_its_thoughts() -> None:
    found = form(response(THOUGHT, message(TEXT), CALL))
    assert found.problem is None
    completion = ChatCompletion.model_validate(found.answer, strict=True)
    assert (completion.id, completion.model, completion.created) == ("resp_1", "gpt-5-2025-08-07", 1_750_000_000)
    [choice] = completion.choices
    assert (choice.message.content, choice.finish_reason) == ("Hello.", "tool_calls")
    assert found.answer["choices"][0]["message"]["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    ]
    assert completion.usage is not None
    assert completion.usage.to_dict() == {
        "prompt_tokens": 30,
        "completion_tokens": 12,
        "total_tokens": 42,
        "prompt_tokens_details": {"cached_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    assert "secret thought" not in str(found.answer)


def test_the_answer_sent_back_as_input_is_the_same_message() -> None:
    output = [THOUGHT, message(TEXT), message(TEXT), CALL]
    answered = form(response(*output)).answer["choices"][0]["message"]
    [again] = RESPONSES.chat_request({"input": output})["messages"]
    assert {name: value for name, value in answered.items() if value is not None} == again


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (response(message(TEXT)), ("Hello.", None, "stop")),
        (response(message({"type": "refusal", "refusal": "No."})), (None, "No.", "stop")),
        (response(message(TEXT), status=None), ("Hello.", None, "stop")),
        (
            response(message(TEXT), status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
            ("Hello.", None, "length"),
        ),
        (
            response(THOUGHT, status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
            (None, None, "length"),
        ),
        (
            response(status="incomplete", incomplete_details={"reason": "content_filter"}),
            (None, None, "content_filter"),
        ),
        (response({"type": "message", "role": "assistant", "content": "Hello."}), ("Hello.", None, "stop")),
    ],
)
def test_how_an_answer_ended(answer: dict[str, Any], expected: tuple[Any, ...]) -> None:
    choice = form(answer).answer["choices"][0]
    assert (choice["message"]["content"], choice["message"]["refusal"], choice["finish_reason"]) == expected


def test_log_probabilities_and_citations_are_kept() -> None:
    token = {"token": "Hello.", "logprob": -0.1, "bytes": [72], "top_logprobs": []}
    cited = {"type": "url_citation", "start_index": 0, "end_index": 5, "title": "t", "url": "http://x"}
    choice = form(response(message(TEXT | {"logprobs": [token], "annotations": [cited]}))).answer["choices"][0]
    assert choice["logprobs"] == {"content": [token], "refusal": None}
    [annotation] = (
        ChatCompletion.model_validate(form(response(message(TEXT | {"annotations": [cited]}))).answer)
        .choices[0]
        .message.annotations
        or []
    )
    assert annotation.url_citation.url == "http://x"


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ({"type": "web_search_call", "id": "ws_1", "status": "completed"}, "provider_tool"),
        ({"type": "mcp_call", "id": "mcp_1"}, "provider_tool"),
        ({"type": "image_generation_call", "id": "ig_1", "result": "AA=="}, "provider_tool"),
        ({"type": "local_shell_call", "call_id": "c"}, "unsayable"),
        ({"type": "compaction", "encrypted_content": "x"}, "history_unseen"),
        (message({"type": "output_audio", "data": "x"}), "media"),
        (CALL | {"namespace": "crm"}, "unsayable"),
    ],
)
def test_an_answer_that_a_chat_cannot_give_is_a_problem(item: dict[str, Any], problem: Problem) -> None:
    assert form(response(item, message(TEXT))).problem == problem


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({}, "no_answer"),
        ({"error": {"message": "x"}}, "no_answer"),
        ({"choices": [{"message": {}}]}, "no_answer"),
        (response(), "no_answer"),
        (response("x"), "no_answer"),
        (response({"type": "function_call", "call_id": "c", "arguments": "{}"}), "no_answer"),
        (response({"type": "message", "content": ["x"]}), "no_answer"),
        (response(status="queued"), "unfinished"),
        (response(message(TEXT), status="in_progress"), "unfinished"),
        (response(message(TEXT), status="cancelled"), "unfinished"),
        (response(status="failed", error={"code": "server_error", "message": "x"}), "unfinished"),
        (response(message(TEXT), status=["completed"]), "unfinished"),
        (response(message(TEXT), status="incomplete"), "unfinished"),
        (response(message(TEXT), status="incomplete", incomplete_details={"reason": "steered"}), "unfinished"),
    ],
)
def test_what_is_no_finished_answer(answer: dict[str, Any], reason: Reason) -> None:
    assert RESPONSES.flaw(answer, {}, whole=True) == reason


def test_an_answer_whose_end_was_not_seen_must_say_that_it_is_whole() -> None:
    assert RESPONSES.flaw(response(message(TEXT)), {}, whole=False) is None
    assert RESPONSES.flaw(response(message(TEXT), status=None), {}, whole=False) == "incomplete"
