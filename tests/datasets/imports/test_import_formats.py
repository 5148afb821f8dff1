"""Readers of imported files: each format as its program writes it.

The files of OpenInference and OpenTelemetry were written by their instrumentations of the `openai` package, those of
Langfuse and Phoenix by the models of their clients; the frame of Phoenix by pandas, from the same spans.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstream.datasets.imports.conversation import Conversation, Options, Refused, Skipped
from slipstream.datasets.imports.files import ImportFileError, open_records
from slipstream.datasets.imports.formats import READERS, Format

FILES = Path(__file__).parent / "files"
WEATHER = {"role": "assistant", "content": "It rains in Paris."}
ASKED = ["system", "user"]


def read(format_: str, *paths: Path, **options: Any) -> list[Conversation | Refused | Skipped]:
    with ExitStack() as opened:
        files = [opened.enter_context(open_records(path)) for path in paths]
        return list(READERS[Format(format_)](files, Options(**options)))


def whole(found: Iterable[Conversation | Refused | Skipped]) -> list[Conversation]:
    found = list(found)
    assert not [str(each) for each in found if isinstance(each, Refused)]
    return [each for each in found if isinstance(each, Conversation)]


def lines(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def refusals(found: Iterable[Conversation | Refused | Skipped]) -> list[tuple[int, str, str]]:
    return [(each.place.line, each.field, each.reason) for each in found if isinstance(each, Refused)]


@pytest.mark.parametrize(
    ("format_", "file", "sessions"),
    [
        ("phoenix", "openinference_otlp.json", ["visit-1", "visit-2"]),
        ("phoenix", "openinference_spans.jsonl", ["visit-1", "visit-2"]),
        ("phoenix", "phoenix_frame.jsonl", ["visit-1", "visit-2"]),
        ("otel", "openinference_otlp.json", ["visit-1", "visit-2"]),
        ("otel", "otel_messages.jsonl", [None, None, None]),
        ("otel", "otel_events.jsonl", [None, None, None]),
    ],
)
def test_spans_are_calls_of_traces_of_sessions(format_: str, file: str, sessions: list[str | None]) -> None:
    found = whole(read(format_, FILES / file))
    assert [each.session for each in found] == sessions
    tasks = [task for each in found for task in each.tasks]
    assert [len(task.calls) for task in tasks] == [2, 2, 1]

    first, second = tasks[0].calls
    assert [message["role"] for message in first.request["messages"]] == ASKED
    assert first.request["messages"][1]["content"] == "What's the weather in Paris?"
    assert first.request["model"] == "gpt-4o-mini"
    [call] = first.answer["tool_calls"]
    assert call["id"] == "call_1"
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("get_weather", {"city": "Paris"})
    assert first.finish_reason == "tool_calls"
    assert first.usage == {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    assert first.at is not None
    assert first.at > 1.7e9
    assert 0 < first.latency < 1

    roles = [message["role"] for message in second.request["messages"]]
    assert roles == [*ASKED, "assistant", "tool"]
    assert second.request["messages"][3]["content"] == "rain, 14 C"
    assert second.request["messages"][3]["tool_call_id"] == "call_1"
    assert second.answer == WEATHER
    if "openinference" in file or "frame" in file:
        assert first.request["tools"][0]["function"]["name"] == "get_weather"
        assert first.request["temperature"] == 0.2


def test_annotations_of_phoenix_are_scores_of_their_spans() -> None:
    found = whole(read("phoenix", FILES / "phoenix_frame.jsonl", FILES / "phoenix_annotations.json"))
    judged = [score for each in found for task in each.tasks for call in task.calls for score in call.scores]
    assert [(score.name, score.thumbs, score.value, score.comment) for score in judged] == [
        ("user feedback", "up", None, "short and right"),
        ("user feedback", None, 0.25, None),
    ]


@pytest.mark.parametrize("file", ["langfuse_api.json", "langfuse_blob.jsonl"])
def test_generations_of_langfuse_are_calls_in_their_order(file: str) -> None:
    found = read("langfuse", FILES / file, FILES / "langfuse_scores.json")
    [one] = whole(found)
    assert one.session == "visit-1"
    assert [task.name for task in one.tasks] == ["t-1", "t-2"]
    (first, second), (last,) = (task.calls for task in one.tasks)
    assert [message["role"] for message in second.request["messages"]] == [*ASKED, "assistant", "tool"]
    assert first.request["tools"][0]["function"]["name"] == "get_weather"
    assert first.request["temperature"] == 0.2
    assert "user" not in first.request, "a parameter that is none of the API's is not sent to a model"
    assert second.answer == WEATHER
    assert last.answer == {"role": "assistant", "content": "You are welcome."}
    assert (first.at, first.latency) == (1772366401.0, 1.0)
    assert [score.value for score in one.tasks[0].scores] == [0.75], "of the trace"
    assert [score.thumbs for score in last.scores] == ["down"], "of the observation"
    assert [each.count for each in found if isinstance(each, Skipped)] == [2], "a span, and a score of a session"


def test_the_page_of_langfuse_exports_scores_in_columns_of_their_names(tmp_path: Path) -> None:
    row = {
        "id": "o", "traceId": "t", "type": "GENERATION", "startTime": "2026-03-01T12:00:01.000Z", "input": "hello",
        "output": {"role": "assistant", "content": "hi"}, "model": "m", "correct": [1], "latency": 1200,
    }  # fmt: skip
    [one] = whole(read("langfuse", lines(tmp_path / "page.jsonl", row), score="correct"))
    [call] = one.tasks[0].calls
    assert one.session is None
    assert call.request["messages"] == [{"role": "user", "content": "hello"}]
    assert [(score.name, score.value) for score in call.scores] == [("correct", 1.0)]


def test_an_answer_in_json_is_its_text(tmp_path: Path) -> None:
    row = {"id": "o", "type": "GENERATION", "input": "hello"}
    said = [{"city": "Paris"}, '{ "city": "Paris" }', ["Paris"], "[Paris]", {"content": '{"city": 1}'}]
    path = lines(tmp_path / "json.jsonl", *({**row, "id": f"o{n}", "output": each} for n, each in enumerate(said)))
    texts = [each.tasks[0].calls[0].answer["content"] for each in whole(read("langfuse", path))]
    assert texts == ['{"city":"Paris"}', '{ "city": "Paris" }', '["Paris"]', "[Paris]", '{"city": 1}']


def test_a_trace_names_the_session_of_observations_that_do_not(tmp_path: Path) -> None:
    trace = {"id": "t", "timestamp": "2026-03-01T12:00:00Z", "name": "chat", "sessionId": "visit-9"}
    generation = {"id": "o", "traceId": "t", "type": "GENERATION", "input": "hello", "output": "hi"}
    [one] = whole(read("langfuse", lines(tmp_path / "both.jsonl", generation, trace)))
    assert one.session == "visit-9"
    renamed = {**generation, "metadata": {"chat": 17}}
    [other] = whole(read("langfuse", lines(tmp_path / "own.jsonl", renamed), session_field="metadata.chat"))
    assert other.session == "17"


def test_each_assistant_message_of_a_fine_tuning_line_is_a_call_unless_its_weight_is_0(tmp_path: Path) -> None:
    tool_call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    line = {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "first", "weight": 0},
            {"role": "user", "content": "two"},
            {"role": "assistant", "tool_calls": [tool_call]},
            {"role": "tool", "tool_call_id": "c1", "content": "seen"},
            {"role": "assistant", "content": "second", "weight": 1},
            {"role": "user", "content": "three"},
            {"role": "assistant", "content": "third"},
        ],
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {}}}],
        "parallel_tool_calls": False,
        "metadata": {"chat": "chat-1"},
    }
    [one] = whole(read("openai-chat", lines(tmp_path / "chat.jsonl", line), session_field="metadata.chat"))
    assert one.session == "chat-1"
    asked = [[len(call.request["messages"]) for call in task.calls] for task in one.tasks]
    assert asked == [[4, 6], [8]], "a task a user message; the answer of weight 0 is only said before"
    call = one.tasks[0].calls[0]
    assert call.request["parallel_tool_calls"] is False
    assert call.request["tools"] == line["tools"]
    assert all(
        "weight" not in message for task in one.tasks for each in task.calls for message in each.request["messages"]
    )
    assert one.tasks[0].calls[1].answer == {"role": "assistant", "content": "second"}


def test_a_preference_is_one_question_with_a_liked_and_a_disliked_answer(tmp_path: Path) -> None:
    line = {
        "input": {"messages": [{"role": "user", "content": "hello"}], "tools": [], "parallel_tool_calls": True},
        "preferred_output": [{"role": "assistant", "content": "hi"}],
        "non_preferred_output": [{"role": "assistant", "content": "go away"}],
    }
    [one] = whole(read("openai-preference", lines(tmp_path / "pairs.jsonl", line)))
    said = [(call.answer["content"], call.scores[0].thumbs) for task in one.tasks for call in task.calls]
    assert said == [("hi", "up"), ("go away", "down")]
    assert len({json.dumps(call.request) for task in one.tasks for call in task.calls}) == 1


_USER = {"role": "user", "content": "hello"}
_HI = {"role": "assistant", "content": "hi"}


@pytest.mark.parametrize(
    ("format_", "record", "field", "reason"),
    [
        ("openai-chat", {}, "messages", "expected a list of messages, found none"),
        ("openai-chat", {"messages": [_USER]}, "messages", "expected an answer of the assistant"),
        ("openai-chat", {"messages": [_HI]}, "messages[0]", "expected a message before"),
        ("openai-chat", {"messages": [{"role": "bot", "content": ""}]}, "messages[0].role", "found 'bot'"),
        ("openai-chat", {"messages": ["hello"]}, "messages[0]", "expected a message, found 'hello'"),
        ("openai-chat", {"messages": [_USER, {**_HI, "weight": 2}]}, "messages[1].weight", "expected 0 or 1, found 2"),
        ("openai-chat", {"messages": [_USER, {"role": "assistant"}]}, "messages[1]", "found neither"),
        ("openai-chat", {"messages": [_USER, {**_HI, "content": 5}]}, "messages[1].content", "found 5"),
        ("openai-chat", {"messages": [_USER, _HI], "tools": ["x"]}, "tools[0]", "expected a tool"),
        ("openai-preference", {"input": []}, "input", "expected an object with messages"),
        ("openai-preference", {"input": {"messages": [_USER]}}, "preferred_output", "expected a list of one"),
        ("langfuse", {"x": 1}, "type", "expected an observation"),
        ("langfuse", {"id": "o", "type": "GENERATION", "output": "x"}, "input", "expected a list of messages"),
        ("langfuse", {"id": "o", "type": "GENERATION", "input": "x"}, "output", "expected an answer"),
        ("langfuse", {"id": "o", "type": "GENERATION", "startTime": "noon"}, "startTime", "found 'noon'"),
        ("otel", {"x": 1}, "context.span_id", "expected the id"),
        ("otel", {"spanId": "a", "traceId": 7}, "traceId", "found 7"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_named_by_line_and_field(
    tmp_path: Path, format_: str, record: Any, field: str, reason: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text("\n" + json.dumps(record) + "\n")
    [(line, at, why)] = refusals(read(format_, path))
    assert (line, at) == (2, field)
    assert reason in why


def test_hostile_lines_are_refused_and_the_others_read(tmp_path: Path) -> None:
    good = json.dumps({"messages": [_USER, _HI]}).encode()
    path = tmp_path / "hostile.jsonl"
    hostile = [
        good.replace(b"hello", b"\xff\xfe"),
        b'{"messages": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"messages": [' + b"[]," * 600_000 + b"[]]}",
        b'{"messages": "' + b"x" * 50 * 1024**2 + b'"}',
        good.replace(b"hello", b"\\ud800"),
        b"[]",
        b'{"messages": NaN}',
        b'{"messages":',
    ]
    path.write_bytes(b"\n".join([good, *hostile, good]))
    found = read("openai-chat", path)
    assert len([each for each in found if isinstance(each, Conversation)]) == 2
    assert [(line, why.partition(",")[0]) for line, _, why in refusals(found)] == [
        (2, "expected UTF-8"),
        (3, "expected at most 100 levels"),
        (4, "expected at most 500000 values"),
        (5, "expected at most 16777216 bytes"),
        (6, "expected text in valid Unicode"),
        (7, "expected a JSON object"),
        (8, "expected JSON"),
        (9, "expected JSON"),
    ]


def test_a_broken_call_refuses_its_conversation_alone(tmp_path: Path) -> None:
    def generation(name: str, trace: str, **fields: Any) -> dict[str, Any]:
        return {"id": name, "traceId": trace, "type": "GENERATION", "input": "q", "output": "a", **fields}

    path = lines(tmp_path / "some.jsonl", generation("1", "a"), generation("2", "b"), generation("3", "a", output=None))
    found = read("langfuse", path)
    assert [each.name for each in found if isinstance(each, Conversation)] == ["b"]
    assert [(line, field) for line, field, _ in refusals(found)] == [(3, "output")]


def test_documents_are_read_record_by_record_with_their_lines(tmp_path: Path) -> None:
    records = [
        {"messages": [{"role": "user", "content": 'a ] } " [ {'}, _HI]},
        {"messages": 1},
        {"messages": [_USER, _HI]},
    ]
    path = tmp_path / "list.json"
    path.write_text("\ufeff" + json.dumps(records, indent=2), encoding="utf-8")
    found = read("openai-chat", path)
    assert len([each for each in found if isinstance(each, Conversation)]) == 2
    [(line, field, _)] = refusals(found)
    assert path.read_text(encoding="utf-8").splitlines()[line].strip() == '"messages": 1', (
        "the line after its beginning"
    )
    assert field == "messages"

    for text in (json.dumps(records)[:-1], json.dumps(records, indent=2) + "x", '["a'):
        path.write_text(text)
        with pytest.raises(ImportFileError, match=r"list\.json: expected"):
            read("openai-chat", path)
    with pytest.raises(ImportFileError, match="can be read"):
        read("openai-chat", tmp_path / "missing.jsonl")
    (tmp_path / "empty.jsonl").touch()
    assert read("openai-chat", tmp_path / "empty.jsonl") == []


_keys = st.sampled_from(
    ["messages", "role", "content", "tool_calls", "input", "output", "id", "traceId", "type", "parts", "tools", "name",
     "function", "weight", "spanId", "attributes", "value", "key", "resourceSpans", "scopeSpans", "spans", "context",
     "span_id", "trace_id", "events", "startTime", "scores", "subject", "result", "stringValue",
     "kvlistValue", "values"]
)  # fmt: skip
_leaves = st.sampled_from(
    [None, True, 0, 1, -1, 10**400, 2.5, "", "user", "assistant", "x", "GENERATION", "[{}]", '{"role":', "LLM", "text",
     "gen_ai.input.messages", "llm.input_messages.0.message.role", "9999-12-31T23:59:59-14:00", "9" * 30]
)  # fmt: skip
_values = st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=5), max_leaves=25
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(record=st.dictionaries(_keys, _values, max_size=6))
def test_no_record_ends_a_reader(tmp_path: Path, record: dict[str, Any]) -> None:
    path = tmp_path / "any.jsonl"
    path.write_text(json.dumps(record) + "\n")
    for format_ in Format:
        for each in read(format_, path):
            assert isinstance(each, Conversation | Refused | Skipped)
