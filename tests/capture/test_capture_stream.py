"""Streams of chunks, as real servers send them, put together again."""

from __future__ import annotations

import json
import zlib
from typing import Any

import brotli
import pytest
import zstandard
from captured_chats import event_stream, exchange, read_call, user
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from slipstream.capture.completion import CapturedCall
from slipstream.dialects.body import NotCaptured


def chunk(
    delta: dict[str, Any] | None = None, finish: str | None = None, index: int = 0, **fields: Any
) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}]
    return {
        "id": "chatcmpl-A1",
        "object": "chat.completion.chunk",
        "created": 1_750_000_000,
        "model": "gpt-4o-2024-08-06",
        "system_fingerprint": "fp_1",
        "choices": choices,
    } | fields


def piece(index: int, arguments: str, **fields: Any) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": fields.pop("name")} if "name" in fields else {})
    return {"tool_calls": [{"index": index, **fields, "function": function}]}


DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27}

OPENAI_TEXT = event_stream(
    chunk({"role": "assistant", "content": "", "refusal": None}, service_tier="default", usage=None, obfuscation="x9"),
    chunk({"content": "Grü"}, service_tier="default", usage=None, obfuscation="q"),
    chunk({"content": "ße, 你好 🙂\u2028"}, service_tier="default", usage=None),
    chunk({"content": "!"}, service_tier="default", usage=None),
    chunk({}, "stop", service_tier="default", usage=None),
    chunk(usage=USAGE, service_tier="default"),
)

OPENAI_TOOLS = event_stream(
    chunk(
        {
            "role": "assistant",
            "content": None,
            "refusal": None,
            **piece(0, "", id="call_a", type="function", name="add"),
        }
    ),
    chunk(piece(0, '{"a"')),
    chunk(piece(0, ": 1}")),
    chunk(piece(1, "", id="call_b", type="function", name="weather")),
    chunk(piece(1, '{"city": "Köln"}')),
    chunk({}, "tool_calls"),
)

VLLM = event_stream(
    chunk({"role": "assistant", "content": ""}, model="qwen"),
    chunk(
        {"reasoning_content": "The user "},
        model="qwen",
        usage={**USAGE, "completion_tokens": 1},
    ),
    chunk({"reasoning_content": "asks."}, model="qwen"),
    chunk({"content": "4"}, model="qwen"),
    chunk(piece(0, "", id="chatcmpl-tool-1", type="function", name="add"), model="qwen"),
    chunk(piece(0, '{"a": 2}'), "tool_calls", model="qwen"),
    chunk(usage=USAGE, model="qwen"),
)

AZURE = event_stream(
    {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Hello"}),
    chunk({}, "stop"),
    {
        "id": "",
        "object": "",
        "created": 0,
        "model": "",
        "choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {"check_offset": 5}}],
    },
)

TWO_CHOICES = event_stream(
    chunk({"role": "assistant", "content": "a"}, index=1),
    chunk({"role": "assistant", "content": "b"}, index=0),
    chunk({}, "stop", index=1),
    chunk({"content": "c"}, index=0),
    chunk({}, "length", index=0),
)

STREAMS = {"text": OPENAI_TEXT, "tools": OPENAI_TOOLS, "vllm": VLLM, "azure": AZURE, "two": TWO_CHOICES}


def read(stream: bytes) -> CapturedCall | NotCaptured:
    return read_call(exchange(answer=stream))


def answer(stream: bytes) -> dict[str, Any]:
    call = read(stream)
    assert isinstance(call, CapturedCall), call
    return call.answer


def test_text_of_openai() -> None:
    assert answer(OPENAI_TEXT) == {
        "id": "chatcmpl-A1",
        "object": "chat.completion",
        "created": 1_750_000_000,
        "model": "gpt-4o-2024-08-06",
        "system_fingerprint": "fp_1",
        "service_tier": "default",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Grüße, 你好 🙂\u2028!"},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
    }


def test_parallel_tool_calls_of_openai() -> None:
    message = answer(OPENAI_TOOLS)["choices"][0]["message"]
    assert message["content"] is None
    assert message["tool_calls"] == [
        {"id": "call_a", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
        {"id": "call_b", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Köln"}'}},
    ]


def test_reasoning_tools_and_running_usage_of_vllm() -> None:
    got = answer(VLLM)
    message = got["choices"][0]["message"]
    assert message["reasoning_content"] == "The user asks."
    assert message["content"] == "4"
    assert message["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 2}'}
    assert (got["usage"], got["model"], got["choices"][0]["finish_reason"]) == (USAGE, "qwen", "tool_calls")


def test_filter_results_of_azure_do_not_unmake_the_answer() -> None:
    got = answer(AZURE)
    assert (got["id"], got["model"], got["prompt_filter_results"]) == (
        "chatcmpl-A1",
        "gpt-4o-2024-08-06",
        [{"prompt_index": 0}],
    )
    assert got["choices"][0]["finish_reason"] == "stop"
    assert got["choices"][0]["message"]["content"] == "Hello"
    assert got["choices"][0]["content_filter_offsets"] == {"check_offset": 5}


def test_the_id_is_the_first_that_the_agent_saw() -> None:
    got = answer(event_stream(chunk({"content": "a"}, id="first"), chunk({}, "stop", id="second")))
    assert got["id"] == "first"


def test_all_choices_are_kept_in_order() -> None:
    choices = answer(TWO_CHOICES)["choices"]
    assert [(choice["index"], choice["message"]["content"], choice["finish_reason"]) for choice in choices] == [
        (0, "bc", "length"),
        (1, "a", "stop"),
    ]


def test_logprobs_refusal_function_call_and_unknown_fields() -> None:
    def token(text: str) -> dict[str, Any]:
        return {"token": text, "logprob": -0.5, "bytes": None, "top_logprobs": []}

    first = chunk(
        {"role": "assistant", "refusal": "I can", "x": "old", "function_call": {"name": "f", "arguments": "{"}}
    )
    first["choices"][0]["logprobs"] = {"content": [token("a")], "refusal": None}
    second = chunk({"refusal": "not", "x": "new", "function_call": {"arguments": "}"}})
    second["choices"][0]["logprobs"] = {"content": [token("b"), token("c")], "refusal": None}
    choice = answer(event_stream(first, second, chunk({}, "function_call")))["choices"][0]

    assert choice["message"]["refusal"] == "I cannot"
    assert choice["message"]["function_call"] == {"name": "f", "arguments": "{}"}
    assert choice["message"]["x"] == "new"
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == ["a", "b", "c"]


def test_tool_calls_with_no_index_or_one_that_begins_at_1() -> None:
    whole = [{"id": f"t{i}", "type": "function", "function": {"name": "f", "arguments": f"[{i}]"}} for i in range(2)]
    no_index = event_stream(*(chunk({"tool_calls": [part]}) for part in whole), chunk({}, "tool_calls"))
    from_1 = event_stream(
        chunk({"tool_calls": [part | {"index": i + 1} for i, part in enumerate(whole)]}, "tool_calls")
    )
    for stream in (no_index, from_1):
        assert answer(stream)["choices"][0]["message"]["tool_calls"] == whole


def called(number: int, arguments: str = "", index: int | None = 0, **fields: Any) -> dict[str, Any]:
    """A piece of a tool call that names it."""
    function = {"name": f"f{number}", "arguments": arguments}
    return {"index": index, "id": f"t{number}", "type": "function", "function": function | fields}


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param([called(1, "{}"), called(2, '{"q":2}')], ["{}", '{"q":2}'], id="Gemini's, whole"),
        pytest.param(
            [called(1, '{"q":'), piece(0, "1}")["tool_calls"][0], called(2), piece(0, '{"q":2}')["tool_calls"][0]],
            ['{"q":1}', '{"q":2}'],
            id="in pieces",
        ),
        pytest.param(
            [called(1, "{"), called(2, "["), *(piece(0, "]}"[-n], id=f"t{n}")["tool_calls"][0] for n in (1, 2))],
            ["{}", "[]"],
            id="in turns",
        ),
        pytest.param([called(1), called(2, "{}")], ["", "{}"], id="without arguments"),
        pytest.param(
            [called(1, "{}"), called(2, "{}") | {"function": {"name": "f1", "arguments": "{}"}}],
            ["{}", "{}"],
            id="the same function",
        ),
        pytest.param(
            [called(1, "{}"), called(2, "{}"), called(3, '{"q":3}', index=1)],
            ["{}", "{}", '{"q":3}'],
            id="a number that was given away",
        ),
    ],
)
def test_parallel_tool_calls_that_share_a_number_stay_apart(pieces: list[Any], expected: list[str]) -> None:
    stream = event_stream(*(chunk({"tool_calls": [part]}) for part in pieces), chunk({}, "tool_calls"))
    calls = answer(stream)["choices"][0]["message"]["tool_calls"]
    found = [(call["id"], call["function"]["arguments"]) for call in calls]
    assert found == [(f"t{number}", passed) for number, passed in enumerate(expected, 1)]


def test_one_tool_call_each_piece_of_which_has_an_id_of_its_own_is_one() -> None:
    pieces = [called(1, passed) | {"id": f"t{place}"} for place, passed in enumerate(["", '{"q"', ":1}", ""])]
    stream = event_stream(*(chunk({"tool_calls": [part]}) for part in pieces), chunk({}, "stop"))
    [call] = answer(stream)["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "f1", "arguments": '{"q":1}'}


def test_content_that_comes_as_parts() -> None:
    def thought(text: str, **fields: Any) -> dict[str, Any]:
        return {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}], **fields}]}

    def said(*contents: Any) -> Any:
        deltas = [content if isinstance(content, dict) else {"content": content} for content in contents]
        return answer(event_stream(*map(chunk, deltas), chunk({"content": ""}, "stop")))["choices"][0]["message"][
            "content"
        ]

    text = {"type": "text", "text": "4"}
    assert said("", thought("2 and "), thought("2", closed=True), "4", "2", "!") == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "2 and 2"}], "closed": True},
        {"type": "text", "text": "42!"},
    ]
    assert said("It is ", [dict(text)], [dict(text)], "!") == "It is 44!"
    assert said([{"type": "thinking"}], thought("2")) == [{"type": "thinking"}, *thought("2")["content"]]
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    assert said([text, picture, dict(text)], "2") == [text, picture, {"type": "text", "text": "42"}]


def test_spoken_answers() -> None:
    sounds = [{"id": "audio_1", "transcript": "Hel"}, {"data": "AAAA", "transcript": "lo"}, {"data": "BBBB"}]
    stream = event_stream(
        chunk({"role": "assistant", "content": None, "audio": sounds[0]}),
        *(chunk({"audio": sound}) for sound in sounds[1:]),
        chunk({"audio": {"expires_at": 1}}),
        chunk({}, "stop"),
    )
    spoken = {"id": "audio_1", "transcript": "Hello", "data": "AAAABBBB", "expires_at": 1}
    assert answer(stream)["choices"][0]["message"]["audio"] == spoken


def test_a_custom_tool_call() -> None:
    parts = [
        {"index": 0, "id": "t", "type": "custom", "custom": {"name": "shell", "input": "ls "}},
        {"index": 0, "custom": {"input": "-l"}},
    ]
    stream = event_stream(*(chunk({"tool_calls": [part]}) for part in parts), chunk({}, "tool_calls"))
    (call,) = answer(stream)["choices"][0]["message"]["tool_calls"]
    assert call == {"id": "t", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}


@pytest.mark.parametrize("name", STREAMS)
def test_every_legal_way_to_write_the_events_reads_the_same(name: str) -> None:
    stream = STREAMS[name]
    expected = answer(stream)
    spread = stream.replace(b', "object"', b',\ndata: "object"')  # one JSON value over two data lines
    ways = {
        "crlf": stream.replace(b"\n", b"\r\n"),
        "cr": stream.replace(b"\n", b"\r"),
        "byte order mark": b"\xef\xbb\xbf" + stream,
        "comments": b": OPENROUTER PROCESSING\n\n" + stream.replace(b"data: {", b": ping\ndata: {"),
        "no blank after the colon": stream.replace(b"data: ", b"data:"),
        "named events": stream.replace(b"data: {", b"event: chunk\nid: 7\nretry: 10\ndata: {"),
        "blank data": stream.replace(b"data: {", b"data:\n\ndata: {"),
        "several data lines": spread,
        "nothing after done": stream.rstrip(b"\n"),
    }
    assert spread != stream
    for way, body in ways.items():
        assert answer(body) == expected, way


FINISHES = {"text": 1, "tools": 1, "vllm": 1, "azure": 1, "two": 2}
"""How many choices each stream has, of which each says that it finished."""


@pytest.mark.parametrize(
    ("complete", "line_end"), [(True, b"\n"), (False, b"\r\n")], ids=["production ended", "the caller left"]
)
@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_is_cut_is_a_call_once_all_choices_have_finished(
    name: str, complete: bool, line_end: bytes
) -> None:
    request = {"messages": [user("hi")], "stream": True, "n": FINISHES[name]}
    expected = [(choice["message"], choice["finish_reason"]) for choice in answer(STREAMS[name])["choices"]]
    body = STREAMS[name].rstrip(b"\n").replace(b"\n", line_end)
    ends = [at for at in range(len(body)) if body.startswith(line_end * 2, at)]
    cuts = {cut for at in ends for cut in range(at - 2, at + 6)} | set(range(0, len(body), 11))
    for cut in sorted(cuts):
        call = read_call(exchange(request, body[:cut], complete=complete))
        if finishes(body[:cut]) < FINISHES[name]:
            assert call == NotCaptured("truncated_stream" if complete else "incomplete"), body[cut - 40 : cut]
        else:
            assert isinstance(call, CapturedCall), body[cut - 40 : cut]
            said = [(choice["message"], choice["finish_reason"]) for choice in call.answer["choices"]]
            assert said == expected


def finishes(body: bytes) -> int:
    """How many events of the stream that have come to their end say that a choice has finished."""
    return sum(b'"finish_reason": "' in event for event in b"\n".join([*body.splitlines(), b""]).split(b"\n\n")[:-1])


def test_of_two_choices_one_that_finished_is_not_the_whole() -> None:
    first = event_stream(chunk({"role": "assistant", "content": "a"}), chunk({}, "stop")).removesuffix(DONE)
    assert read_call(exchange({"messages": [user("hi")], "n": 2}, first)) == NotCaptured("truncated_stream")
    assert read_call(exchange({"messages": [user("hi")], "n": 2}, first, complete=False)) == NotCaptured("incomplete")
    assert isinstance(read_call(exchange({"messages": [user("hi")]}, first, complete=False)), CapturedCall)


@pytest.mark.parametrize("error", ["caller_gone", "closed", "idle_timeout"])
def test_what_comes_after_done_does_not_matter(error: str) -> None:
    for stream in STREAMS.values():
        assert isinstance(read_call(exchange(answer=stream, complete=False, error=error)), CapturedCall)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_a_compressed_stream_whose_caller_left_at_done_is_a_call(encoding: str) -> None:
    """Its last block was flushed, and its end never came."""
    flushed = _flushed(encoding, OPENAI_TEXT)
    headers = [(b"content-type", b"text/event-stream"), (b"content-encoding", encoding.encode())]
    left = exchange(answer=flushed, response_headers=headers, complete=False)
    assert isinstance(read_call(left), CapturedCall)
    assert read_call(exchange(answer=flushed[:60], response_headers=headers, complete=False)) == NotCaptured(
        "incomplete"
    )


def _flushed(encoding: str, body: bytes) -> bytes:
    if encoding == "br":
        brotli_out = brotli.Compressor()
        return bytes(brotli_out.process(body) + brotli_out.flush())
    if encoding == "zstd":
        zstd_out = zstandard.ZstdCompressor().compressobj()
        return zstd_out.compress(body) + zstd_out.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    zlib_out = zlib.compressobj(wbits=16 + zlib.MAX_WBITS if encoding == "gzip" else zlib.MAX_WBITS)
    return zlib_out.compress(body) + zlib_out.flush(zlib.Z_SYNC_FLUSH)


def test_a_stream_whose_choices_did_not_all_finish_is_no_call() -> None:
    unfinished = event_stream(chunk({"content": "a"}, "stop"), chunk({"content": "b"}, index=1))
    assert read(unfinished) == NotCaptured("truncated_stream")


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (event_stream(chunk({"content": "a"}), {"error": {"message": "overloaded", "code": 529}}), "error_in_stream"),
        (b"event: error\ndata: it broke\n\n" + OPENAI_TEXT, "error_in_stream"),
        (event_stream(chunk(usage=USAGE)), "no_answer"),
        (event_stream(chunk({"content": ["a"]}, "stop")), "no_answer"),
        (event_stream(chunk({"content": [{"type": "text"}]}, "stop")), "no_answer"),
        (event_stream(chunk({"content": [{"type": "thinking", "thinking": [1]}]}, "stop")), "no_answer"),
        (event_stream(chunk({"tool_calls": [{"index": 0, "function": "f"}]}, "stop")), "no_answer"),
        (event_stream(chunk({"audio": {"data": 1}}, "stop")), "no_answer"),
        (event_stream([1]), "no_answer"),
        (event_stream("{"), "not_json"),
        (b"", "truncated_stream"),
    ],
)
def test_a_stream_that_is_no_answer(stream: bytes, reason: str) -> None:
    assert read(stream) == NotCaptured(reason)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["text", "tools", "vllm"])
def test_the_agent_with_the_openai_sdk_saw_the_same(name: str) -> None:
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for line in STREAMS[name].splitlines():
        if line.startswith(b"data: {"):
            state.handle_chunk(ChatCompletionChunk.model_validate(json.loads(line[6:])))
    seen = state.get_final_completion().to_dict()

    got = answer(STREAMS[name])
    assert got["usage" if name == "text" else "id"] == seen["usage" if name == "text" else "id"]
    for ours, theirs in zip(got["choices"], seen["choices"], strict=True):  # type: ignore[arg-type]
        assert ours["finish_reason"] == theirs["finish_reason"]
        for field in ("role", "content"):
            assert ours["message"][field] == theirs["message"].get(field)
        for our_call, their_call in zip(
            ours["message"].get("tool_calls", []), theirs["message"].get("tool_calls") or [], strict=True
        ):
            for field in ("name", "arguments"):
                assert our_call["function"][field] == their_call["function"][field]
            assert our_call["id"] == their_call["id"]
