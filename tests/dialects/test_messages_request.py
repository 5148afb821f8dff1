"""Requests of the Messages API as chat requests: the prompt that the same conversation written as chat gives."""

from __future__ import annotations

import re
from typing import Any, get_args, get_type_hints

import pytest
from anthropic_messages import ADD, assistant, message, request, text, tool_result, tool_use, user
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter

from slipstream.dialects.form import Held, Translator, Unsayable
from slipstream.dialects.messages.translator import MessagesTranslator

MESSAGES: Translator = MessagesTranslator()
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}}
PAPER = {"type": "document", "title": "Paper", "source": {"type": "text", "media_type": "text/plain", "data": "Words."}}
CALLED_BY_CODE = tool_use("t", "f") | {"caller": {"type": "code_execution_20260120", "tool_id": "s"}}
OPENAI = TypeAdapter(CompletionCreateParamsNonStreaming)


def chat(asked: dict[str, Any]) -> dict[str, Any]:
    """The chat request, which OpenAI's own types take."""
    asked = MESSAGES.chat_request(asked)
    OPENAI.validate_python({key: value for key, value in asked.items() if key != "chat_template_kwargs"})
    return asked


def said(*messages: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    messages_of_chat: list[dict[str, Any]] = chat(request(*messages, **fields))["messages"]
    return messages_of_chat


def call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def problem(asked: dict[str, Any]) -> tuple[str, str] | None:
    """The problem and its place; both ways to ask must agree on it."""
    form = MESSAGES.chat_form(asked, message())
    if form.problem is None:
        assert MESSAGES.chat_request(asked) == form.request
        return None
    with pytest.raises(Unsayable) as refused:
        MESSAGES.chat_request(asked)
    assert refused.value.problem == form.problem
    return refused.value.problem, refused.value.at


def test_a_conversation_with_tools_is_what_a_chat_agent_would_have_sent() -> None:
    asked = request(
        user("2 + 2?"),
        assistant(
            {"type": "thinking", "thinking": "Add.", "signature": "s"}, text("I add."), tool_use("t1", "add", a=2)
        ),
        user(tool_result("t1", [text("4")]), text("And now?", cache_control={"type": "ephemeral"})),
        system=[text("Be brief.", cache_control={"type": "ephemeral"})],
        tools=[ADD | {"cache_control": {"type": "ephemeral"}}],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        stop_sequences=["END"],
        temperature=0.5,
        top_p=0.9,
        metadata={"user_id": "u1"},
        stream=True,
    )
    assert chat(asked) == {
        "model": "claude-opus-4-6",
        "max_tokens": 1024,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "2 + 2?"},
            {"role": "assistant", "content": "I add.", "tool_calls": [call("t1", "add", '{"a": 2}')]},
            {"role": "tool", "tool_call_id": "t1", "content": "4"},
            {"role": "user", "content": "And now?"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "add",
                    "description": "Add two numbers.",
                    "parameters": ADD["input_schema"],
                },
            }
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "stop": ["END"],
        "temperature": 0.5,
        "top_p": 0.9,
        "user": "u1",
    }


def test_results_of_tools_come_first_whatever_the_order_of_the_blocks() -> None:
    turn = user(text("One more thing."), tool_result("t1", "1"), text("Go on."), tool_result("t2", "2"))
    messages = said(user("x"), assistant(tool_use("t1", "add"), tool_use("t2", "add")), turn)
    assert messages[1] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [call("t1", "add", "{}"), call("t2", "add", "{}")],
    }
    assert messages[2:] == [
        {"role": "tool", "tool_call_id": "t1", "content": "1"},
        {"role": "tool", "tool_call_id": "t2", "content": "2"},
        {"role": "user", "content": "One more thing.\nGo on."},
    ]


def test_messages_of_one_role_are_one_turn() -> None:
    messages = said(user("a"), user("b"), assistant("c"), assistant(text("d"), text("e")), user("f"))
    assert messages == [
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "cde"},
        {"role": "user", "content": "f"},
    ]


def test_results_and_words_in_two_messages_are_one_turn() -> None:
    messages = said(user("x"), assistant(tool_use("t1", "add")), user("wait"), user([tool_result("t1", "1")]))
    assert [each["role"] for each in messages[2:]] == ["tool", "user"]


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ("Be brief.", "Be brief."),
        ([text("Be brief."), text("Be kind.")], "Be brief.\nBe kind."),
        ([text("x-anthropic-billing-header: cc_version=2; cch=1f2e3;"), text("Be brief.")], "Be brief."),
        ("x-anthropic-billing-header: cc_version=2; cch=1f2e3;\nBe brief.", "Be brief."),
        ("", None),
        ([], None),
        ([text("x-anthropic-billing-header: cch=1;")], None),
    ],
)
def test_a_system_prompt_is_one_message(system: Any, expected: str | None) -> None:
    first = [] if expected is None else [{"role": "system", "content": expected}]
    assert said(system=system) == [*first, {"role": "user", "content": "hi"}]


def test_a_system_message_amid_the_conversation_stays_there() -> None:
    messages = said({"role": "system", "content": "B"}, user("x"), {"role": "system", "content": "C"}, system="A")
    assert messages == [
        {"role": "system", "content": "A\nB"},
        {"role": "user", "content": "x"},
        {"role": "system", "content": "C"},
    ]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (tool_result("t1", "4"), "4"),
        (tool_result("t1", [text("4"), text("5")]), "4\n5"),
        (tool_result("t1"), ""),
        (tool_result("t1", []), ""),
        (tool_result("t1", "no such file", is_error=True), "no such file"),
        (tool_result("t1", is_error=True), "Error"),
        (tool_result("t1", [PAPER]), "Paper\nWords."),
    ],
)
def test_a_result_of_a_tool_is_text(result: dict[str, Any], expected: str) -> None:
    assert said(user("x"), assistant(tool_use("t1", "add")), user([result]))[2]["content"] == expected


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (PAPER, "Paper\nWords."),
        (PAPER | {"context": "From 1997."}, "Paper\nFrom 1997.\nWords."),
        ({"type": "document", "source": {"type": "content", "content": [text("a"), text("b")]}}, "a\nb"),
        ({"type": "document", "source": {"type": "content", "content": "a"}}, "a"),
        (
            {"type": "search_result", "title": "T", "source": "https://a.example", "content": [text("b")]},
            "T\nhttps://a.example\nb",
        ),
    ],
)
def test_a_document_that_is_text_is_text(block: dict[str, Any], expected: str) -> None:
    assert said(user(block, text("?")))[0]["content"] == f"{expected}\n?"


def test_input_of_a_tool_that_was_no_json_is_given_back_as_it_was() -> None:
    messages = said(
        user("x"), assistant([tool_use("t1", "add", INVALID_JSON='{"a": ')]), user([tool_result("t1", "?")])
    )
    assert messages[1]["tool_calls"][0]["function"]["arguments"] == '{"a": '


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "any", "disable_parallel_tool_use": False}, {"tool_choice": "required"}),
        ({"type": "tool", "name": "add"}, {"tool_choice": {"type": "function", "function": {"name": "add"}}}),
        (None, {}),
    ],
)
def test_the_choice_of_a_tool(choice: Any, expected: dict[str, Any]) -> None:
    asked = chat(request(tools=[ADD], tool_choice=choice))
    assert {key: asked[key] for key in ("tool_choice", "parallel_tool_calls") if key in asked} == expected
    assert "tool_choice" not in chat(request(tools=[], tool_choice=choice))


def test_fields_of_a_tool() -> None:
    tools = [{"type": "custom", "name": "f", "input_schema": {}, "strict": True, "eager_input_streaming": True,
              "allowed_callers": ["direct"], "input_examples": [{"a": 1}]}]  # fmt: skip
    function = {"name": "f", "parameters": {"examples": [{"a": 1}]}, "strict": True}
    assert chat(request(tools=tools))["tools"] == [{"type": "function", "function": function}]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"output_config": {"effort": "low"}}, {"reasoning_effort": "low"}),
        ({"output_config": {"effort": "max", "format": None}}, {"reasoning_effort": "high"}),
        *(
            (
                fields,
                {
                    "response_format": {
                        "type": "json_schema",
                        "json_schema": {"name": "output", "schema": {"type": "object"}, "strict": True},
                    }
                },
            )
            for fields in (
                {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
                {"output_format": {"type": "json_schema", "schema": {"type": "object"}}},
            )
        ),
        ({"chat_template_kwargs": {"enable_thinking": False}}, {"chat_template_kwargs": {"enable_thinking": False}}),
    ],
)
def test_fields_with_a_word_in_chat(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert chat(request(**fields)) == chat(request()) | expected


@pytest.mark.parametrize(
    "fields",
    [
        {"top_k": 40},
        {"thinking": {"type": "enabled", "budget_tokens": 2000}},
        {"cache_control": {"type": "ephemeral"}},
        {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}},
        {"metadata": {}, "mcp_servers": [], "container": None, "stop_sequences": [], "fallbacks": "default"},
        {"thread": {"type": "create"}},
    ],
)
def test_fields_that_no_model_reads_are_left_out(fields: dict[str, Any]) -> None:
    assert chat(request(**fields)) == chat(request())


def test_the_model_reads_a_deferred_tool_once_a_search_of_the_agent_has_found_it() -> None:
    search, weather, other = ({**ADD, "name": name} for name in ("search", "weather", "other"))
    asked = request(user("Warm?"), tools=[search, *(tool | {"defer_loading": True} for tool in (weather, other))])
    assert [tool["function"]["name"] for tool in chat(asked)["tools"]] == ["search"]
    found = {"type": "tool_reference", "tool_name": "weather"}
    asked["messages"] += [assistant(tool_use("t", "search", a=1)), user([tool_result("t", [found])])]
    assert [tool["function"]["name"] for tool in chat(asked)["tools"]] == ["search", "weather"]
    assert chat(asked)["messages"][-1] == {"role": "tool", "tool_call_id": "t", "content": "weather"}


def test_a_request_whose_tools_are_all_deferred_has_none_for_now() -> None:
    asked = request(tools=[ADD | {"defer_loading": True}], tool_choice={"type": "auto"})
    assert chat(asked) == chat(request())


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (request(user(IMAGE, text("?"))), ("media", "messages[0].content[0]")),
        (request(user(text("?"), PDF)), ("media", "messages[0].content[1]")),
        (request(user("x"), assistant(tool_use("t", "f")), user([tool_result("t", [IMAGE])])),
         ("media", "messages[2].content[0].content[0]")),
        (request(user(PAPER | {"citations": {"enabled": True}}, text("?"))), ("unsayable", "messages[0].content[0]")),
        (request(user("x"), assistant("The answer is (")), ("unsayable", "messages[1]")),
        (request({"role": "tool", "content": "x"}), ("unsayable", "messages[0].role")),
        (request(user("x"), assistant([tool_result("t", "1")]), user("y")), ("unsayable", "messages[1].content[0]")),
        (request(user([tool_use("t", "f")])), ("unsayable", "messages[0].content[0]")),
        (request(user("x"), assistant([CALLED_BY_CODE]), user("y")),
         ("provider_tool", "messages[1].content[0].caller")),
        (request(user("x"), assistant([tool_use("t", "f") | {"toolset_name": "browser"}]), user("y")),
         ("unsayable", "messages[1].content[0].toolset_name")),
        (request(system=[IMAGE]), ("media", "system[0]")),
        (request(tools=[ADD, {"type": "web_search_20250305", "name": "web_search"}]), ("provider_tool", "tools[1]")),
        (request(tools=[{"type": "bash_20250124", "name": "bash"}]), ("unsayable", "tools[0]")),
        (request(tools=[ADD | {"allowed_callers": ["code_execution_20260120"]}]), ("provider_tool", "tools[0]")),
        (request(tools=[{"name": "f"}]), ("unsayable", "tools[0]")),
        (request(tools=[ADD], tool_choice={"type": "most"}), ("unsayable", "tool_choice")),
        (request(mcp_servers=[{"type": "url", "name": "m"}]), ("provider_tool", "mcp_servers")),
        (request(container="container_1"), ("provider_tool", "container")),
        (request(compaction={"type": "summarize"}), ("unsayable", "compaction")),
        (request(output_config={"task_budget": {"type": "tokens", "total": 5000}}),
         ("unsayable", "output_config.task_budget")),
        (request(output_config={"format": {"type": "grammar"}}), ("unsayable", "output_config.format")),
        (request(a_field_of_next_year=1), ("unsayable", "a_field_of_next_year")),
        (request(thread={"type": "continue", "previous_message_id": "msg_0"}),
         ("history_unseen", "thread.previous_message_id")),
    ],
)  # fmt: skip
def test_what_chat_has_no_word_for_is_a_problem_with_its_place(
    asked: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert problem(asked) == expected


def test_what_chat_has_no_word_for_stands_in_the_form_as_it_came() -> None:
    form = MESSAGES.chat_form(request(user(text("Who?"), IMAGE), mcp_servers=[{"name": "m"}]), message())
    assert form.request["messages"] == [{"role": "user", "content": [text("Who?"), IMAGE]}]
    assert form.request["mcp_servers"] == [{"name": "m"}]


def test_a_conversation_that_the_provider_holds_goes_on_from_the_messages_that_passed() -> None:
    asked = request(user("And 3?"), system="Be brief.", thread={"type": "continue", "previous_message_id": "msg_0"})
    earlier = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    assert MESSAGES.history(asked) == "msg_0"
    assert MESSAGES.history(request(thread={"type": "create"})) is None
    assert MESSAGES.chat_request(asked, Held(earlier))["messages"] == [
        {"role": "system", "content": "Be brief."},
        *earlier,
        {"role": "user", "content": "And 3?"},
    ]


def test_a_thread_has_the_tools_that_it_was_created_with() -> None:
    [tool] = chat(request(tools=[ADD]))["tools"]
    asked = request(
        user(tool_result("t", "4")),
        thread={"type": "continue", "previous_message_id": "msg_0"},
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
    )
    form = MESSAGES.chat_request(asked, Held([{"role": "user", "content": "2 + 2?"}], [tool]))
    assert form["tools"] == [tool]
    assert (form["tool_choice"], form["parallel_tool_calls"]) == ("required", False)


def test_a_thread_that_goes_on_with_no_word_is_read_and_not_asked() -> None:
    asked = request(thread={"type": "continue", "previous_message_id": "msg_0"}) | {"messages": []}
    earlier = [{"role": "user", "content": "news?"}, {"role": "assistant", "content": "I look"}]
    form = MESSAGES.chat_form(asked, message(), Held(earlier))
    assert (form.request["messages"], form.problem) == (earlier, "unsayable")
    unseen = MESSAGES.chat_form(asked, message())
    assert (unseen.request["messages"], unseen.problem) == ([{"role": "user", "content": ""}], "history_unseen")


def test_a_thread_whose_tools_the_provider_alone_holds_is_not_asked() -> None:
    found = tool_result("t", [{"type": "tool_reference", "tool_name": "add"}])
    asked = request(user(found, text("go on")), thread={"type": "continue", "previous_message_id": "msg_0"})
    earlier = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": None}]
    with pytest.raises(Unsayable) as refused:
        MESSAGES.chat_request(asked, Held(earlier))
    assert (refused.value.problem, refused.value.at) == ("history_unseen", "messages[0].content[0].content[0]")
    [tool] = chat(request(tools=[ADD]))["tools"]
    assert MESSAGES.chat_request(asked, Held(earlier, [tool]))["tools"] == [tool]
    own = MESSAGES.chat_request(asked | {"tools": [ADD | {"defer_loading": True}]}, Held(earlier))
    assert own["tools"] == [tool]
    odd = MESSAGES.chat_form(asked | {"tools": [{"type": "function", "name": "add"}, 1]}, message(), Held(earlier))
    assert odd.problem == "unsayable"


@pytest.mark.parametrize(
    ("asked", "is_request"),
    [
        (request(), True),
        ({"model": "claude", "messages": [user("hi")]}, True),
        (request(max_tokens=0), False),
        ({"messages": []}, False),
        ({"messages": [], "thread": {"type": "create"}}, False),
        ({"messages": [], "thread": {"type": "continue", "previous_message_id": "msg_0"}}, True),
        ({"messages": None, "thread": {"type": "continue", "previous_message_id": "msg_0"}}, False),
        ({"messages": ["hi"]}, False),
        ({"prompt": "hi"}, False),
    ],
)
def test_what_can_be_a_request(asked: dict[str, Any], is_request: bool) -> None:
    assert MESSAGES.is_request(asked) == is_request


# What the vendor's SDK knows is decided here, one by one: a new release of it that knows more fails these tests.

FIELDS = {
    "as it is or under another name": {"max_tokens", "messages", "metadata", "model", "output_config",
                                       "stop_sequences", "system", "thread", "tool_choice", "tools"},
    "not for the model": {"betas", "billing_policy", "cache_control", "context_management", "diagnostics",
                          "fallback_credit_token", "fallbacks", "inference_geo", "service_tier", "speed", "thinking",
                          "user_profile_id", "workspace_id"},
    "a problem": {"compaction", "container", "mcp_servers"},
}  # fmt: skip

BLOCKS = {
    None: {"text", "thinking", "redacted_thinking", "tool_use", "fallback"},
    "media": {"image", "document"},
    "provider_tool": {"advisor_tool_result", "bash_code_execution_tool_result", "code_execution_tool_result",
                      "container_upload", "mcp_tool_listing", "mcp_tool_result", "mcp_tool_use", "server_tool_use",
                      "text_editor_code_execution_tool_result", "tool_search_tool_result", "web_fetch_tool_result",
                      "web_search_tool_result"},
    "unsayable": {"compaction", "search_result", "tool_addition", "tool_removal", "tool_result"},
}  # fmt: skip
"""By the problem that a block of an answer gives."""

TOOLS = {
    "provider_tool": (
        "advisor",
        "code_execution",
        "mcp_toolset",
        "tool_search_tool_bm25",
        "tool_search_tool_regex",
        "web_fetch",
        "web_search",
    ),
    "unsayable": ("bash", "browser_toolset", "computer", "computer_toolset", "memory", "text_editor"),
}


def types_in(union: Any) -> set[str]:
    """The values of `type` of a union's members."""
    members = get_args(union)
    if members:
        return {value for member in members for value in types_in(member)}
    return set(re.findall(r"['\"](\w+)['\"]", str(getattr(union, "__annotations__", {}).get("type", ""))))


def test_each_field_of_the_sdk_is_decided() -> None:
    from anthropic.types import message_create_params
    from anthropic.types.beta import message_create_params as beta

    known = {
        field for params in (message_create_params, beta) for field in get_type_hints(params.MessageCreateParamsBase)
    }
    assert known == set().union(*FIELDS.values())
    for field in FIELDS["not for the model"]:
        assert problem(request(**{field: {"type": "enabled"}})) is None, field
    for field in FIELDS["a problem"]:
        assert problem(request(**{field: {"type": "enabled"}})) is not None, field


def test_each_block_of_the_sdk_is_decided() -> None:
    from anthropic.types import ContentBlockParam
    from anthropic.types.beta import BetaContentBlockParam

    known = types_in(ContentBlockParam) | types_in(BetaContentBlockParam)
    assert known == set().union(*BLOCKS.values())
    for expected, kinds in BLOCKS.items():
        for kind in kinds:
            block = {"type": kind, "text": "", "source": {"type": "url"}, "input": {}}
            found = problem(request(user("x"), assistant([block]), user("y")))
            assert (found and found[0]) == expected, kind


def test_each_tool_of_the_sdk_is_decided() -> None:
    from anthropic.types import ToolUnionParam
    from anthropic.types.beta import BetaToolUnionParam

    known = (types_in(ToolUnionParam) | types_in(BetaToolUnionParam)) - {"custom"}
    assert {re.sub(r"_\d{8}$", "", kind) for kind in known} == {*TOOLS["provider_tool"], *TOOLS["unsayable"]}
    for kind in known:
        found = problem(request(tools=[{"type": kind, "name": "t"}]))
        assert found is not None
        assert kind.startswith(TOOLS[found[0]]), kind
