from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trl
from pydantic import TypeAdapter
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from slipstream.embedded.chat import Message, Tool, parse_tool_calls, prompt_ids

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
# as Qwen2.5's: roles and tools of its own
NATIVE = (
    "{% for tool in tools or [] %}[{{ tool.function.name }}]{% endfor %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}({{ c.function.name }} {{ c.function.arguments.city }}){% endfor %}{% endfor %}"
)


@pytest.fixture(scope="module")
def tokenizer(tokenizer_files: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tokenizer_files)


def rendered(tokenizer: PreTrainedTokenizerBase, messages: list[Any], tools: list[Any]) -> str:
    ids = prompt_ids(
        tokenizer,
        TypeAdapter(list[Message]).validate_python(messages),
        TypeAdapter(list[Tool]).validate_python(tools),
    )
    return str(tokenizer.decode(ids))


def test_a_plain_chat_is_rendered_by_the_model_s_template(tokenizer: PreTrainedTokenizerBase) -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ]

    assert rendered(tokenizer, messages, []) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_tools_are_written_for_a_template_that_knows_none(tokenizer: PreTrainedTokenizerBase) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather in Oslo?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "snow"},
    ]

    text = rendered(tokenizer, messages, [WEATHER])

    system, _, conversation = text.partition("<|im_end|>\n")
    assert system.startswith("<|im_start|>system\nBe brief.\n\n")
    assert json.dumps(WEATHER["function"]) in system
    assert "<tool_call>" in system
    assert conversation == (
        "<|im_start|>user\nWeather in Oslo?<|im_end|>\n"
        "<|im_start|>assistant\n<tool_call>\n"
        '{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nsnow\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_tools_without_a_system_message_get_one(tokenizer: PreTrainedTokenizerBase) -> None:
    text = rendered(tokenizer, [{"role": "user", "content": "Hi"}], [WEATHER])

    assert text.startswith("<|im_start|>system\nYou can call functions.")
    assert text.count("<|im_start|>system") == 1


def test_a_template_that_knows_tools_renders_them_itself(tokenizer_files: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_files)
    tokenizer.chat_template = NATIVE
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "snow"},
    ]

    assert rendered(tokenizer, messages, [WEATHER]) == "[get_weather]<user>?<assistant>(get_weather Oslo)<tool>snow"


@pytest.mark.parametrize("others", [{}, {"default": "{% for m in messages %}{{ m.content }}{% endfor %}"}])
def test_a_template_for_tools_renders_them_itself(tokenizer_files: Path, others: dict[str, str]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_files)
    tokenizer.chat_template = {**others, "tool_use": NATIVE}
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "", "tool_calls": [CALL]}]

    assert rendered(tokenizer, messages, [WEATHER]) == "[get_weather]<user>?<assistant>(get_weather Oslo)"
    if others:  # which knows no calls
        call = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
        assert rendered(tokenizer, messages, []) == f"?<tool_call>\n{call}\n</tool_call>"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thoughts_that_an_agent_sends_back_are_the_template_s_to_show(tokenizer_files: Path, field: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_files)
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text()
    messages = [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": "In Oslo.", field: "It was the capital."},
        {"role": "user", "content": "Is it cold?", field: "No thought of a user's."},
        {"role": "assistant", "content": "", "tool_calls": [CALL], field: "I have to look."},
        {"role": "tool", "tool_call_id": "c1", "content": "snow"},
    ]

    text = rendered(tokenizer, messages, [WEATHER])

    assert "<|im_start|>assistant\n<think>\nI have to look.\n</think>\n\n<tool_call>" in text
    assert "<|im_start|>assistant\nIn Oslo.<|im_end|>" in text, "of an earlier turn, Qwen3's shows none"
    assert "No thought" not in text


@pytest.mark.parametrize("template", ["smollm2's", "native"])
def test_several_turns_of_tools_keep_their_order(tokenizer_files: Path, template: str) -> None:
    """Two calls at once, their answers, words between, and a call without arguments as OpenAI's SDK writes it."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_files)
    if template == "native":
        tokenizer.chat_template = NATIVE
    bergen = CALL | {"id": "c2", "function": CALL["function"] | {"arguments": '{"city": "Bergen"}'}}
    nowhere = CALL | {"id": "c3", "function": CALL["function"] | {"arguments": ""}}
    messages = [
        {"role": "user", "content": "Where is snow?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL, bergen]},
        {"role": "tool", "tool_call_id": "c1", "content": "snow"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "rain"}]},
        {"role": "assistant", "content": "And here?", "tool_calls": [nowhere]},
        {"role": "tool", "tool_call_id": "c3", "content": "sun"},
    ]

    _, _, conversation = rendered(tokenizer, messages, [WEATHER]).partition("Where is snow?")
    if template == "native":
        assert conversation == (
            "<assistant>(get_weather Oslo)(get_weather Bergen)<tool>snow<tool>rain"
            "<assistant>And here?(get_weather )<tool>sun"
        )
    else:
        assert conversation == (
            "<|im_end|>\n<|im_start|>assistant\n"
            '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
            '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bergen"}}\n</tool_call><|im_end|>\n'
            "<|im_start|>user\n<tool_response>\nsnow\n</tool_response><|im_end|>\n"
            "<|im_start|>user\n<tool_response>\nrain\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\nAnd here?\n"
            '<tool_call>\n{"name": "get_weather", "arguments": {}}\n</tool_call><|im_end|>\n'
            "<|im_start|>user\n<tool_response>\nsun\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n"
        )


def test_tool_calls_are_read_from_a_response() -> None:
    content, calls = parse_tool_calls(
        'Let me see.\n<tool_call>\n{"name": "f", "arguments": {"city": "Zürich"}}\n</tool_call>\n'
        '<tool_call>{"name": "g"}</tool_call>'
    )

    assert content == "Let me see."
    assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == [
        ("f", {"city": "Zürich"}),
        ("g", {}),
    ]
    assert calls[0].id != calls[1].id


def test_a_call_that_the_end_of_the_response_closes_counts() -> None:
    content, [call] = parse_tool_calls('<tool_call>{"name": "f", "arguments": {}}')

    assert (content, call.function.name) == (None, "f")


@pytest.mark.parametrize(
    "text",
    [
        "no call at all",
        '<tool_call>{"name": "f", "arguments": {"city": </tool_call>',
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"name": 3}</tool_call>',
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
        '<tool_call>["f"]</tool_call>',
        '<tool_call>{"name": "f"}</tool_call> and <tool_call>{broken</tool_call>',
        "<tool_call>",
        pytest.param('<tool_call>{"name": "f", "arguments": {"deep": ' + "[" * 5000, id="nested too deep"),
        '<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": {"half a character": "\\ud800"}}</tool_call>',
    ],
)
def test_a_response_with_an_unreadable_call_stays_text(text: str) -> None:
    assert parse_tool_calls(text) == (text, [])
