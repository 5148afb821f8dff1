"""Requests to `/v1/responses` in the chat form: the messages and tools that a chat of the same conversation has."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.dialects.form import Held, Problem, Unsayable
from slipstream.dialects.responses.references import references, resolved
from slipstream.dialects.responses.translator import ResponsesTranslator

RESPONSES = ResponsesTranslator()


def asked(items: Any = "hi", **fields: Any) -> dict[str, Any]:
    return RESPONSES.chat_request({"model": "gpt-5", "input": items, **fields})


def messages(*items: Any, **fields: Any) -> list[Any]:
    return list(asked(list(items), **fields)["messages"])


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def said(text: str, name: str = "msg_1") -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"id": name, "type": "message", "status": "completed", "role": "assistant", "content": [part]}


def call(name: str, arguments: str = "{}", number: int = 1) -> dict[str, Any]:
    about = {"id": f"fc_{number}", "type": "function_call", "status": "completed", "call_id": f"call_{number}"}
    return about | {"name": name, "arguments": arguments}


def result(output: Any, number: int = 1) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": output}


def called(name: str, arguments: str = "{}", number: int = 1) -> dict[str, Any]:
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"input": "hi"}, [user("hi")], id="text"),
        pytest.param({"input": "", "instructions": ""}, [user("")], id="empty text"),
        pytest.param(
            {"input": "hi", "instructions": "Be kind."},
            [{"role": "system", "content": "Be kind."}, user("hi")],
            id="instructions",
        ),
        pytest.param(
            {"input": [{"type": "message", **user([{"type": "input_text", "text": "hi"}])}]}, [user("hi")], id="a part"
        ),
        pytest.param(
            {"input": [user([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}])]},
            [user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])],
            id="parts",
        ),
        pytest.param(
            {"input": [{"role": role, "content": "x"} for role in ("developer", "system", "user", "assistant")]},
            [{"role": role, "content": "x"} for role in ("developer", "system", "user", "assistant")],
            id="roles",
        ),
    ],
)
def test_what_was_said_is_said_in_the_same_words(fields: dict[str, Any], expected: list[Any]) -> None:
    assert RESPONSES.is_request(fields)
    assert RESPONSES.chat_request(fields)["messages"] == expected


def test_what_an_answer_says_and_calls_is_one_message() -> None:
    assert messages(
        user("Add."),
        THOUGHT,
        said("Let me see."),
        THOUGHT,
        call("add", '{"a": 1}', 1),
        call("add", '{"a": 2}', 2),
        result("1", 1),
        result("2", 2),
        said("Done."),
        user("Thanks."),
    ) == [
        user("Add."),
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [called("add", '{"a": 1}', 1), called("add", '{"a": 2}', 2)],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "1"},
        {"role": "tool", "tool_call_id": "call_2", "content": "2"},
        {"role": "assistant", "content": "Done."},
        user("Thanks."),
    ]


def test_calls_without_words_have_null_content_and_words_may_follow_them() -> None:
    assert messages(user("x"), call("a")) == [
        user("x"),
        {"role": "assistant", "content": None, "tool_calls": [called("a")]},
    ]
    assert messages(user("x"), call("a"), said("I called."), result("1"))[1] == {
        "role": "assistant",
        "content": "I called.",
        "tool_calls": [called("a")],
    }


def test_results_part_the_calls_of_two_turns() -> None:
    turns = messages(call("a", number=1), result("1", 1), call("b", number=2), result("2", 2))
    assert [message["role"] for message in turns] == ["assistant", "tool", "assistant", "tool"]


def test_parts_of_one_answer_join_and_messages_that_were_written_do_not() -> None:
    assert messages(said("One. ", "msg_1"), said("Two.", "msg_2")) == [{"role": "assistant", "content": "One. Two."}]
    written = [{"role": "assistant", "content": "One."}, {"role": "assistant", "content": "Two."}]
    assert messages(*written) == written


def test_refusals_stay_refusals() -> None:
    item = said("")
    item["content"] = [{"type": "refusal", "refusal": "No."}]
    refused = {"role": "assistant", "content": None, "refusal": "No."}
    assert messages(item) == [refused]
    written = {"role": "assistant", "content": "Yes."}
    assert messages(item, written) == [refused, written]


def test_a_result_in_parts() -> None:
    parts = [{"type": "input_text", "text": "1"}]
    assert messages(call("a"), result(parts))[1]["content"] == "1"
    assert messages(call("a"), result(parts * 2))[1]["content"] == [{"type": "text", "text": "1"}] * 2


def test_custom_tools_are_in_the_chat_form_to_be_read() -> None:
    request = {
        "model": "gpt-5",
        "input": [
            {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "sql", "input": "SELECT 1"},
            {"type": "custom_tool_call_output", "call_id": "call_1", "output": "1"},
        ],
        "tools": [
            {
                "type": "custom",
                "name": "sql",
                "description": "Runs SQL.",
                "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
            }
        ],
    }
    form, _, problem = RESPONSES.chat_form(request, {"output": [said("Done.")]})
    assert problem == "unsayable"
    assert form["messages"] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "1"},
    ]
    grammar = {"syntax": "lark", "definition": "start: /.+/"}
    assert form["tools"] == [
        {
            "type": "custom",
            "custom": {
                "name": "sql",
                "description": "Runs SQL.",
                "format": {"type": "grammar", "grammar": grammar},
            },
        }
    ]


FUNCTION = {"type": "function", "name": "add", "description": "Adds.", "parameters": {"type": "object"}}
NESTED = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}


def test_functions_have_the_fields_that_were_given_and_no_null() -> None:
    assert asked(tools=[FUNCTION])["tools"] == [NESTED]
    strict = asked(tools=[FUNCTION | {"strict": True}])["tools"][0]["function"]
    assert strict == NESTED["function"] | {"strict": True}
    bare = {"type": "function", "name": "now", "description": None, "parameters": None, "strict": None}
    assert asked(tools=[bare])["tools"] == [{"type": "function", "function": {"name": "now"}}]
    assert asked(tools=[NESTED])["tools"] == [NESTED]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "name": "add"}, {"type": "function", "function": {"name": "add"}}),
    ],
)
def test_tool_choices(choice: Any, expected: Any) -> None:
    assert asked(tools=[FUNCTION], tool_choice=choice)["tool_choice"] == expected


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_only_allowed_tools_are_shown(mode: str) -> None:
    choice = {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": "add"}]}
    form = asked(tools=[FUNCTION | {"name": "mul"}, FUNCTION], tool_choice=choice)
    assert (form["tools"], form["tool_choice"]) == ([NESTED], mode)


def test_without_a_tool_nothing_is_said_of_tools() -> None:
    form = asked(tools=[], tool_choice="auto", parallel_tool_calls=True)
    assert form == {"model": "gpt-5", "messages": [user("hi")]}


def test_fields_of_other_names_are_renamed_and_those_of_both_stay() -> None:
    schema = {"name": "answer", "schema": {"type": "object"}, "strict": True, "description": None}
    both = {
        "temperature": 0.5,
        "top_p": 0.9,
        "user": "u",
        "safety_identifier": "s",
        "metadata": {"k": "v"},
        "store": True,
        "service_tier": "flex",
        "prompt_cache_key": "p",
        "seed": 7,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    form = asked(
        **both,
        tools=[FUNCTION],
        parallel_tool_calls=False,
        max_output_tokens=100,
        reasoning={"effort": "low", "summary": "auto"},
        text={"format": {"type": "json_schema", **schema}, "verbosity": "low"},
        include=["message.output_text.logprobs", "reasoning.encrypted_content"],
        top_logprobs=3,
        truncation="auto",
        background=False,
        stream=True,
        stream_options={"include_obfuscation": False},
        max_tool_calls=3,
        client_metadata={"turn_id": "t"},
        instructions=None,
        previous_response_id=None,
    )
    del schema["description"]
    assert form == both | {
        "model": "gpt-5",
        "messages": [user("hi")],
        "tools": [NESTED],
        "parallel_tool_calls": False,
        "max_completion_tokens": 100,
        "reasoning_effort": "low",
        "verbosity": "low",
        "response_format": {"type": "json_schema", "json_schema": schema},
        "logprobs": True,
        "top_logprobs": 3,
    }
    assert asked(text={"format": {"type": "json_object"}})["response_format"] == {"type": "json_object"}
    assert "response_format" not in asked(text={"format": {"type": "text"}})


IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"}
FILE = {"type": "input_file", "file_id": "file-1"}


@pytest.mark.parametrize(
    ("fields", "problem", "at"),
    [
        ({"input": [user([{"type": "input_text", "text": "x"}, IMAGE])]}, "media", "input[0].content[1]"),
        ({"input": [user([FILE])]}, "media", "input[0].content[0]"),
        ({"input": [user([{"type": "input_audio", "input_audio": {}}])]}, "media", "input[0].content[0]"),
        ({"input": [call("look"), result([IMAGE])]}, "media", "input[1].output[0]"),
        ({"input": [user([{"type": "hologram"}])]}, "unsayable", "input[0].content[0]"),
        ({"input": [{"role": "critic", "content": "x"}]}, "unsayable", "input[0]"),
        ({"input": [user("x"), {"type": "web_search_call", "id": "ws_1"}]}, "provider_tool", "input[1]"),
        ({"input": [{"type": "mcp_approval_response", "approve": True}]}, "provider_tool", "input[0]"),
        ({"input": [{"type": "computer_call_output", "call_id": "c"}]}, "media", "input[0]"),
        ({"input": [{"type": "shell_call", "call_id": "c"}]}, "unsayable", "input[0]"),
        ({"input": [{"type": "tool_search_call", "execution": "server"}]}, "provider_tool", "input[0]"),
        ({"input": [{"type": "tool_search_call", "execution": "client"}]}, "unsayable", "input[0]"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "history_unseen", "input[0]"),
        ({"input": [{"id": "msg_1"}]}, "history_unseen", "input[0]"),
        ({"input": [{"type": "compaction", "encrypted_content": "x"}]}, "history_unseen", "input[0]"),
        ({"input": [call("a") | {"namespace": "crm"}]}, "unsayable", "input[0].namespace"),
        ({"input": [call("a") | {"caller": {"type": "program"}}]}, "provider_tool", "input[0].caller"),
        ({"input": [call("a") | {"arguments": {}}]}, "unsayable", "input[0].arguments"),
        ({"input": "x", "tools": [FUNCTION, {"type": "web_search"}]}, "provider_tool", "tools[1]"),
        ({"input": "x", "tools": [{"type": "web_search_preview_2025_03_11"}]}, "provider_tool", "tools[0]"),
        ({"input": "x", "tools": [{"type": "mcp", "server_label": "m"}]}, "provider_tool", "tools[0]"),
        ({"input": "x", "tools": [{"type": "local_shell"}]}, "unsayable", "tools[0]"),
        ({"input": "x", "tools": [{"type": "shell"}]}, "unsayable", "tools[0]"),
        (
            {"input": "x", "tools": [{"type": "shell", "environment": {"type": "container_auto"}}]},
            "provider_tool",
            "tools[0]",
        ),
        ({"input": "x", "tools": [{"type": "namespace", "name": "n", "tools": []}]}, "unsayable", "tools[0]"),
        ({"input": "x", "tools": [FUNCTION | {"defer_loading": True}]}, "provider_tool", "tools[0]"),
        ({"input": "x", "tools": [FUNCTION], "tool_choice": {"type": "mcp"}}, "provider_tool", "tool_choice"),
        ({"input": "x", "tools": [FUNCTION, {"type": "custom", "name": "sql"}]}, "unsayable", "tools[1]"),
        (
            {"input": [{"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": ""}]},
            "unsayable",
            "input[0]",
        ),
        (
            {"input": "x", "tools": [FUNCTION], "tool_choice": {"type": "custom", "name": "sql"}},
            "unsayable",
            "tool_choice",
        ),
        (
            {"input": "x", "tools": [FUNCTION], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}},
            "unsayable",
            "tool_choice",
        ),
        (
            {
                "input": "x",
                "tools": [FUNCTION],
                "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "sql"}]},
            },
            "unsayable",
            "tool_choice.tools[0]",
        ),
        ({"input": "x", "prompt": {"id": "pmpt_1"}}, "history_unseen", "prompt"),
        ({"prompt": {"id": "pmpt_1"}}, "history_unseen", "prompt"),
        ({"input": "x", "previous_response_id": "resp_1"}, "history_unseen", "previous_response_id"),
        ({"input": "x", "conversation": {"id": "conv_1"}}, "history_unseen", "conversation"),
        ({"input": "x", "instructions": [user("hi")]}, "unsayable", "instructions"),
        ({"input": "x", "text": {"format": {"type": "grammar"}}}, "unsayable", "text.format"),
    ],
)
def test_what_a_chat_cannot_say_is_named_and_stays_to_be_read(
    fields: dict[str, Any], problem: Problem, at: str
) -> None:
    assert RESPONSES.is_request(fields)
    with pytest.raises(Unsayable) as caught:
        RESPONSES.chat_request(fields)
    assert (caught.value.problem, caught.value.at) == (problem, at)
    form = RESPONSES.chat_form(fields, {"output": [said("x")]})
    assert form.problem == problem
    assert form.request["messages"]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"previous_response_id": "resp_1"}, "resp_1"),
        ({"conversation": "conv_1"}, "conv_1"),
        ({"conversation": {"id": "conv_1"}}, "conv_1"),
        ({"previous_response_id": None, "conversation": None}, None),
        ({}, None),
    ],
)
def test_history_is_named(fields: dict[str, Any], name: str | None) -> None:
    assert RESPONSES.history({"input": "x", **fields}) == name


def test_a_history_that_was_seen_stands_between_the_instructions_and_the_input() -> None:
    earlier = [user("Add."), {"role": "assistant", "content": None, "tool_calls": [called("add")]}]
    form = RESPONSES.chat_request(
        {"input": [result("3")], "instructions": "New ones.", "previous_response_id": "resp_1"}, Held(earlier)
    )
    assert form["messages"] == [
        {"role": "system", "content": "New ones."},
        *earlier,
        {"role": "tool", "tool_call_id": "call_1", "content": "3"},
    ]
    assert "previous_response_id" not in form


@pytest.mark.parametrize(
    "body",
    [{}, {"input": None}, {"input": []}, {"input": 7}, {"input": ["x"]}, {"messages": [user("x")]}, {"prompt": None}],
)
def test_what_asks_for_nothing_is_no_request(body: dict[str, Any]) -> None:
    assert not RESPONSES.is_request(body)
    with pytest.raises(Unsayable):
        RESPONSES.chat_request(body)


def test_references_to_items_that_were_seen_are_resolved() -> None:
    held = {item["id"]: item for item in (said("Let me see."), call("add"))}
    names = ["rs_1", "msg_1", "fc_1", "rs_2"]
    request = {
        "input": [user("Add."), *({"type": "item_reference", "id": name} for name in names), result("3")],
    }
    assert references(request) == names
    assert RESPONSES.chat_request(resolved(request, held))["messages"] == [
        user("Add."),
        {"role": "assistant", "content": "Let me see.", "tool_calls": [called("add")]},
        {"role": "tool", "tool_call_id": "call_1", "content": "3"},
    ]
    with pytest.raises(Unsayable) as caught:
        RESPONSES.chat_request(resolved(request, {"msg_1": held["msg_1"]}))
    assert (caught.value.problem, caught.value.at) == ("history_unseen", "input[3]")
    assert (references({"input": "x"}), resolved({"input": "x"}, held)) == ([], {"input": "x"})
