"""The table of docs/capture.md lists these clients, and production answers them as the vendors' APIs do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from matrix import wire_chat, wire_messages, wire_responses
from matrix.client import FOLDER, ROOT, clients
from matrix.report import REGION, markdown
from matrix.said import Json, Said, in_chat, in_messages, in_responses
from matrix.script import Reply
from matrix.trial import Grouping, Outcome
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

PAGE = ROOT / "docs" / "capture.md"


def test_the_table_has_each_client_with_its_version_its_dialect_and_what_must_be_set() -> None:
    table = PAGE.read_text().partition(f"<!-- {REGION}: begin -->")[2].partition(f"<!-- {REGION}: end -->")[0]
    rows = [line.strip("| ").split(" | ")[:4] for line in table.splitlines() if line.startswith("| ")][1:]
    assert rows == [
        [client.title, client.version, f"{client.dialect} (default)" if client.is_default else client.dialect,
         client.needs]
        for client in clients()
    ]  # fmt: skip


def test_each_folder_has_an_agent_and_exact_versions() -> None:
    assert {client.folder for client in clients()} == {path.parent.name for path in FOLDER.glob("*/about.toml")}
    for client in clients():
        folder = FOLDER / client.folder
        assert (folder / ("agent.mjs" if client.in_node else "agent.py")).is_file(), client.name
        assert set(client.modes) <= {"whole", "stream"}
        if not client.in_node:
            lines = (folder / "requirements.txt").read_text().splitlines()
            assert [
                line for line in lines if line and not re.fullmatch(r"#.*|[\w.-]+(\[[\w,-]+\])?==[\w.!+]+", line)
            ] == []


def test_the_table_says_how_calls_group_and_which_were_run_and_captured(tmp_path: Path) -> None:
    client = clients()[0]
    outcome = Outcome(
        client.name, "1.0", {"whole": Grouping(3, 1, 1), "stream": Grouping(3, 3, 2)}, {0: 20, 5: 3, 50: 0}, run=5
    )
    outcome.save(tmp_path / "outcome.json")
    row = markdown([(client, Outcome.read(tmp_path / "outcome.json"))]).splitlines()[-1]
    assert row.endswith("| whole: 3 in 1 task, 1 session; stream: 3 in 3 tasks, 2 sessions | 5 of 6 | 20, 3, 0 |")
    outcome.groupings["stream"], outcome.streams, outcome.run = Grouping(3, 1, 1), {}, 6
    row = markdown([(client, outcome)]).splitlines()[-1]
    assert row.endswith("| 3 in 1 task, 1 session | all | not streamed |")


REPLIES = [
    Reply("", [("weather", {"city": "Paris"}), ("weather", {"city": "Rome"})]),
    Reply("Now the last one. ", [("weather", {"city": "Oslo"})]),
    Reply("Sunny in all three."),
]


def events_of(stream: Iterable[str]) -> list[Json]:
    events = [text.partition("data: ")[2].strip() for text in stream]
    return [json.loads(event) for event in events if event != "[DONE]"]


def check(kind: Any, value: Json) -> None:
    """Fail unless a vendor's type has each field of the value, and the value each field that the type needs."""
    # the noise in a stream's pieces is in OpenAI's reference, and in no type
    assert set(unknown(TypeAdapter(kind).validate_python(value))) <= {"obfuscation"}


def unknown(value: Any) -> list[str]:
    """The fields that a vendor's type does not have."""
    if isinstance(value, list):
        return [name for item in value for name in unknown(item)]
    if not isinstance(value, BaseModel):
        return []
    parts = [getattr(value, name) for name in type(value).model_fields]
    return [*(value.model_extra or {}), *(name for part in parts for name in unknown(part))]


@pytest.mark.slow
@pytest.mark.parametrize("reply", REPLIES, ids=["calls", "words-and-call", "words"])
def test_production_says_what_the_vendors_apis_say(reply: Reply) -> None:
    chat = {"model": "gpt-4o", "stream_options": {"include_usage": True}}
    completion = wire_chat.completion("n", reply, chat)
    check(ChatCompletion, completion)
    for chunk in events_of(wire_chat.chunks(completion, chat)):
        check(ChatCompletionChunk, chunk)

    thinks = {"include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}}
    response = wire_responses.response("n", reply, {"model": "gpt-5", **thinks})
    check(Response, response)
    for event in events_of(wire_responses.events(response)):
        check(ResponseStreamEvent, event)

    message = wire_messages.message("n", reply, {"model": "claude", "thinking": {"type": "adaptive"}})
    check(Message, message)
    for event in events_of(wire_messages.events(message)):
        if event["type"] != "ping":  # which the SDK reads over
            check(RawMessageStreamEvent, event)


def test_one_conversation_reads_the_same_in_each_dialect() -> None:
    """A trial compares such readings; parts, references and thoughts are read too."""
    function = {"name": "weather", "arguments": '{"city":"Paris"}'}
    chat = {"messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Warm?"}]},
        {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "c", "function": function}]},
        {"role": "tool", "tool_call_id": "c", "content": "sunny"},
    ]}  # fmt: skip
    said = [Said("system", "Be brief."), Said("user", "Warm?"), Said("assistant", "I look."),
            Said("call", 'weather {"city": "Paris"}'), Said("tool", "sunny")]  # fmt: skip
    assert in_chat(chat) == said
    words = {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}
    called = {"type": "function_call", "call_id": "c", **function}
    given = [{"role": "user", "content": "Warm?"}, {"type": "reasoning", "id": "r", "summary": []}]
    asked = {
        "instructions": "Be brief.",
        "input": [*given, {"type": "item_reference", "id": "m"}, called,
                  {"type": "function_call_output", "call_id": "c", "output": "sunny"}],
    }  # fmt: skip
    assert in_responses(asked, {"m": words}, {}) == said
    held = asked | {"input": asked["input"][-1:], "previous_response_id": "resp"}
    assert in_responses(held, {}, {"resp": [*given, words, called]}) == said
    use = {"type": "tool_use", "id": "c", "name": "weather", "input": {"city": "Paris"}}
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "sunny"}]}
    messages = {
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "Warm?"},
                     {"role": "assistant", "content": [thought, {"type": "text", "text": "I look."}, use]},
                     {"role": "user", "content": [result]}],
    }  # fmt: skip
    assert in_messages(messages) == said


@pytest.mark.parametrize("needless", ["torch", "nvidia", "triton"])
def test_no_environment_has_what_trains_models(needless: str) -> None:
    for pins in FOLDER.glob("*/requirements.txt"):
        assert not re.search(rf"^{needless}", pins.read_text(), re.MULTILINE), pins
