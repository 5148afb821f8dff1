"""The policy's completions as responses, read by the vendor's own SDKs over a real server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter
from responses_policy import RESPONSES, Policy, calls

from slipstream.dialects.events import events

TOOL: dict[str, Any] = {
    "type": "function",
    "name": "add",
    "description": "Adds.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    },
    "strict": True,
}
BOTH = {"content": "Let me add.", "tool_calls": calls(("call_1", "add", '{"a": 1}'), ("call_2", "add", '{"a": 2}'))}
"""A message with words and two calls."""

THOUGHTFUL = {"content": "Grüße 🙂", "reasoning_content": "They greet me."}


async def test_a_whole_answer() -> None:
    async with Policy([BOTH]).served() as policy:
        response = await policy.client.responses.create(
            model="gpt-5",
            input="Add.",
            instructions="Be kind.",
            tools=[TOOL],
            temperature=0.5,
            metadata={"k": "v"},
        )
    assert (response.id, response.model, response.status) == ("chatcmpl-1", "policy", "completed")
    assert response.output_text == "Let me add."
    assert [item.type for item in response.output] == ["message", "function_call", "function_call"]
    found = [(item.call_id, item.name, item.arguments) for item in response.output if item.type == "function_call"]
    assert found == [("call_1", "add", '{"a": 1}'), ("call_2", "add", '{"a": 2}')]
    assert len({item.id for item in response.output}) == 3
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (30, 12, 42)
    assert response.usage.input_tokens_details.cached_tokens == 10
    assert response.usage.output_tokens_details.reasoning_tokens == 5
    assert (response.instructions, response.temperature, response.metadata) == ("Be kind.", 0.5, {"k": "v"})
    assert [tool.name for tool in response.tools if tool.type == "function"] == ["add"]


@pytest.mark.parametrize("message", [BOTH, THOUGHTFUL, {"refusal": "No."}, {"content": ""}])
async def test_a_stream_has_each_event_in_its_place_and_ends_with_the_whole_answer(message: dict[str, Any]) -> None:
    async with Policy([message]).served() as policy:
        kinds = []
        async with policy.client.responses.stream(model="gpt-5", input="Add.", tools=[TOOL]) as stream:
            async for event in stream:
                assert event.sequence_number == len(kinds)
                kinds.append(event.type)
            final = await stream.get_final_response()
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert final.output_text == (message.get("content") or "")
    if message is BOTH:
        assert kinds[2:-1] == [
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            *[
                "response.output_item.added",
                "response.function_call_arguments.delta",
                "response.function_call_arguments.done",
                "response.output_item.done",
            ]
            * 2,
        ]


async def test_structured_answers_are_parsed() -> None:
    class Sum(BaseModel):
        total: int

    async with Policy([{"content": '{"total": 3}'}] * 2).served() as policy:
        parsed = await policy.client.responses.parse(model="gpt-5", input="1 + 2", text_format=Sum)
        async with policy.client.responses.stream(model="gpt-5", input="1 + 2", text_format=Sum) as stream:
            streamed = await stream.get_final_response()
    assert parsed.output_parsed == streamed.output_parsed == Sum(total=3)
    form = policy.asked[0]["response_format"]
    assert (form["type"], form["json_schema"]["name"], form["json_schema"]["strict"]) == ("json_schema", "Sum", True)


@pytest.mark.parametrize("finish", ["length", "content_filter"])
async def test_an_answer_that_was_cut_says_why(finish: str) -> None:
    async with Policy([{"content": "One, tw"}] * 2, finish_reason=finish).served() as policy:
        response = await policy.client.responses.create(model="gpt-5", input="Count.")
        kinds = [
            event.type async for event in await policy.client.responses.create(model="gpt-5", input="", stream=True)
        ]
    reason = {"length": "max_output_tokens", "content_filter": "content_filter"}[finish]
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == reason
    assert kinds[-1] == "response.incomplete"


async def test_log_probabilities_are_there_for_those_who_ask() -> None:
    token = {"token": "H", "logprob": -0.5, "bytes": None, "top_logprobs": [{"token": "h", "logprob": -2.0}]}
    logprobs = {"content": [token], "refusal": None}
    async with Policy([{"content": "H"}] * 2, logprobs=logprobs).served() as policy:
        asked = await policy.client.responses.create(
            model="gpt-5", input="x", include=["message.output_text.logprobs"], top_logprobs=1
        )
        plain = await policy.client.responses.create(model="gpt-5", input="x")
    for response, count in ((asked, 1), (plain, 0)):
        [item] = response.output
        assert item.type == "message"
        [part] = item.content
        assert part.type == "output_text"
        assert len(part.logprobs or []) == count
    assert policy.asked[0]["top_logprobs"] == 1


async def test_thoughts_are_an_item_of_their_own_and_never_come_back() -> None:
    async with Policy([THOUGHTFUL, {"content": "Bye"}]).served() as policy:
        first = await policy.client.responses.create(model="gpt-5", input="Hello.")
        history: Any = [{"role": "user", "content": "Hello."}, *first.output, {"role": "user", "content": "Bye."}]
        await policy.client.responses.create(model="gpt-5", input=history)
    assert [item.type for item in first.output] == ["reasoning", "message"]
    assert policy.asked[1]["messages"] == [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Grüße 🙂"},
        {"role": "user", "content": "Bye."},
    ]


REQUEST = {
    "model": "gpt-5",
    "input": "x",
    "instructions": "Be kind.",
    "tools": [TOOL, {"type": "custom", "name": "sql", "format": {"type": "text"}}],
    "tool_choice": {"type": "function", "name": "add"},
    "reasoning": {"effort": "low"},
    "text": {"verbosity": "low"},
    "include": ["message.output_text.logprobs"],
    "conversation": "conv_1",
}
CUSTOM = {"tool_calls": [{"id": "call_1", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}]}
LEGACY = {"function_call": {"name": "add", "arguments": "{}"}}


def completion(message: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": None} | message, "finish_reason": "stop"}
    return {"id": "chatcmpl-1", "created": 1, "model": "policy", "choices": [choice]}


@pytest.mark.parametrize("message", [BOTH, THOUGHTFUL, CUSTOM, LEGACY, {"refusal": "No."}, {}, {"content": "\ud800"}])
@pytest.mark.parametrize("request_body", [{"input": "x"}, REQUEST])
def test_an_answer_has_all_that_the_vendors_type_wants_and_comes_back_from_its_stream(
    message: dict[str, Any], request_body: dict[str, Any]
) -> None:
    answer = RESPONSES.answer(completion(message), request_body)
    if "\ud800" not in str(message):
        Response.model_validate(answer)
    assert RESPONSES.flaw(answer, request_body, whole=True) is None
    body = b"".join(RESPONSES.stream(answer))
    assert RESPONSES.assemble(body, request_body) == answer
    seen = [json.loads(data) for _, data in events(body)]
    assert [event["type"] for event in seen] == [name for name, _ in events(body)]
    if "\ud800" not in str(message):
        TypeAdapter(list[ResponseStreamEvent]).validate_python(seen)
    seen[-1]["response"] = {**answer, "output": []}  # as some servers end their streams
    again = RESPONSES.assemble(b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in seen), request_body)
    assert again == answer


def test_ids_are_the_same_each_time_and_the_answers_is_the_completions() -> None:
    first, second = (RESPONSES.answer(completion(BOTH), REQUEST) for _ in range(2))
    assert first == second
    assert first["id"] == "chatcmpl-1"


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "invalid_request_error"), (429, "rate_limit_error"), (503, "server_error")]
)
def test_errors_are_in_openais_form(status: int, kind: str) -> None:
    error = {"message": "no", "type": kind, "code": "c", "param": "input"}
    assert RESPONSES.error(status, "no", "c", "input") == {"error": error}
