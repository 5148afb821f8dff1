"""Which requests of users go to a lane: those of units in the share, of what the lane can serve, and of no others."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import ASKED, CHAT, MODEL, routed
from wire import LIMIT, ask, dial, post

from slipstream.proxy import routing as routing_module
from slipstream.serving.page import Split

UNITS = st.integers(0, 2**64 - 1)


def split(share: float, version: int = 8) -> Split:
    return Split(1, version, share, 7, MODEL, "http://lane/v1")


@settings(derandomize=True, deadline=None, database=None)
@given(UNITS, st.integers(0, 2**31 - 1), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_only_adds_units(unit: int, version: int, one: float, other: float) -> None:
    small, large = sorted((one, other))
    if split(small, version).takes(unit):
        assert split(large, version).takes(unit)
    assert not split(0.0, version).takes(unit)
    assert split(1.0, version).takes(unit)


def test_a_share_is_that_of_the_units_and_each_version_has_others() -> None:
    units = [number * 0x9E3779B97F4A7C15 % 2**64 for number in range(20_000)]
    for share in (0.05, 0.5, 0.95):
        taken = sum(map(split(share).takes, units)) / len(units)
        assert abs(taken - share) < 0.015
    both = sum(split(0.1, 8).takes(unit) and split(0.1, 9).takes(unit) for unit in units) / len(units)
    assert both < 0.02, "independent: a hundredth"


async def test_a_session_stays_in_its_arm_in_each_worker_and_at_each_start(tmp_path: Path) -> None:
    arms = []
    for name in ("one", "other"):
        folder = tmp_path / name
        folder.mkdir()
        async with routed(folder, share=0.5) as run:
            found = []
            for turn in range(2):
                for number in range(20):
                    body = json.dumps(
                        {"model": "prod", "messages": [{"role": "user", "content": f"turn {turn}"}]}
                    ).encode()
                    got = await ask(run.port, post(body, b"x-slipstream-session-id: s%d" % number))
                    found.append(got.body)
            assert found[:20] == found[20:], "each session in its arm"
            arms.append(found[:20])
    assert arms[0] == arms[1]
    assert set(Counter(arms[0])) == {b'{"id":"lane"}', b'{"id":"prod"}'}


async def test_without_a_session_the_first_words_and_the_caller_decide(tmp_path: Path) -> None:
    async with routed(tmp_path, share=0.5) as run:
        for number in range(12):
            first = {"role": "user", "content": f"hello {number}"}
            later = [{"role": "system", "content": "now"}, first, {"role": "assistant", "content": "hi"}, first]
            answers = set()
            for messages in ([first], later):
                body = json.dumps({"model": "prod", "messages": messages}).encode()
                answers.add((await ask(run.port, post(body, b"authorization: Bearer sk-1"))).body)
            assert len(answers) == 1, "the calls of a conversation are in one arm"
        assert run.lane
        assert run.production


TEXT = {"model": "prod", "messages": [{"role": "user", "content": "hello"}]}
IMAGE = [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]


@pytest.mark.parametrize(
    ("body", "fields", "path", "reason"),
    [
        pytest.param(TEXT, [b"x-slipstream-variant: production"], b"/v1/chat/completions", "opted_out", id="opted out"),
        pytest.param(TEXT, [b"x-slipstream-variant: version:9"], b"/v1/chat/completions", "opted_out", id="a wish"),
        pytest.param(TEXT, [b"x-slipstream-capture: never"], b"/v1/chat/completions", "not_captured", id="no capture"),
        pytest.param({"model": "m", "input": "hi"}, [], b"/v1/responses", "dialect", id="responses"),
        pytest.param({**TEXT, "max_tokens": 9}, [], b"/v1/messages", "dialect", id="messages"),
        pytest.param(TEXT, [b"content-encoding: gzip"], b"/v1/chat/completions", "encoding", id="compressed"),
        pytest.param({**TEXT, "user": "x" * 4096}, [], b"/v1/chat/completions", "too_large", id="too large"),
        pytest.param(
            {**TEXT, "messages": [{"role": "user", "content": IMAGE}]},
            [],
            b"/v1/chat/completions",
            "content",
            id="image",
        ),
        pytest.param({**TEXT, "n": 2}, [], b"/v1/chat/completions", "content", id="two choices"),
        pytest.param({**TEXT, "store": True}, [], b"/v1/chat/completions", "content", id="stored"),
        pytest.param(
            {**TEXT, "previous_response_id": "r"}, [], b"/v1/chat/completions", "content", id="an unknown field"
        ),
    ],
)
async def test_what_the_lane_cannot_serve_is_in_no_arm(
    tmp_path: Path, body: dict[str, Any], fields: list[bytes], path: bytes, reason: str
) -> None:
    async with routed(tmp_path, max_body=4096) as run:
        got = await ask(run.port, post(json.dumps(body).encode(), *fields, path=path))
        assert got.body == b'{"id":"prod"}'
        assert run.lane == []
        assert run.count("ineligible_total", reason=reason) == 1
        assert run.count("requests_total", arm="treatment") == run.count("requests_total", arm="control") == 0
        if reason not in ("not_captured", "dialect"):  # of which no copy is made here
            served = run.tap.exchanges.get(timeout=LIMIT).served
            assert served is not None
            assert (served.variant, served.arm, served.opted_out) == ("production", None, reason == "opted_out")


async def test_other_requests_are_not_looked_at(tmp_path: Path) -> None:
    async with routed(tmp_path) as run:
        for path in (b"/v1/embeddings", b"/v1/models"):
            assert (await ask(run.port, post(CHAT, path=path))).body == b'{"id":"prod"}'
        assert run.lane == []
        assert "slipstream_serving_ineligible_total" not in {
            sample.name
            for metric in run.side.registry.collect()
            for sample in metric.samples
            if sample.name == "slipstream_serving_ineligible_total" and sample.value
        }


@pytest.mark.parametrize("wish", [b"x-slipstream-variant: ?1", b"X-Slipstream-Variant:  ?1 "])
async def test_who_asks_is_told_who_answers(tmp_path: Path, wish: bytes) -> None:
    async with routed(tmp_path) as run:
        assert (await ask(run.port, post(CHAT, wish))).values(b"x-slipstream-variant") == [b"version:8"]
        run.page.stop(noted=True)
        assert (await ask(run.port, post(CHAT, wish))).values(b"x-slipstream-variant") == [b"production"]
        assert [request.values(b"x-slipstream-variant") for request in (*run.lane, *run.production)] == [[], []]


@pytest.mark.parametrize("zeros", [0, 5000])
async def test_a_body_that_comes_in_pieces_goes_to_the_lane_too(tmp_path: Path, zeros: int) -> None:
    body = CHAT.replace(b"hello", b"x" * 200_000)
    async with routed(tmp_path) as run, dial(run.port) as client:
        request = post(body).replace(b"content-length: ", b"content-length: " + b"0" * zeros)
        async with asyncio.timeout(LIMIT):
            for at in range(0, len(request), 30_000):
                await client.send(request[at : at + 30_000])
                await asyncio.sleep(0)
            assert b'{"id":"lane"}' in await client.reader.readuntil(b"}")
        assert run.lane[0].body == body.replace(b'"prod"', json.dumps(MODEL).encode())


async def test_a_caller_who_asks_before_it_sends_is_told_to_go_on(tmp_path: Path) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: s\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n"
    async with routed(tmp_path) as run, dial(run.port) as client, asyncio.timeout(LIMIT):
        await client.send(head % len(CHAT))
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(CHAT)
        assert b'{"id":"lane"}' in await client.reader.readuntil(b"}")
        assert run.lane[0].body == ASKED


async def test_a_caller_who_leaves_amid_its_request_harms_nobody(tmp_path: Path) -> None:
    async with routed(tmp_path) as run:
        async with dial(run.port) as client:
            await client.send(post(CHAT)[:-5])
        assert (await ask(run.port, post(CHAT))).body == b'{"id":"lane"}'
        assert len(run.lane) == 1
        assert run.side.registry.get_sample_value("slipstream_proxy_in_flight") == 0


async def test_requests_behind_each_other_are_answered_in_order(tmp_path: Path) -> None:
    """Some by the lane, some by production, on one connection."""
    opted_out = b"x-slipstream-variant: production"
    requests = [
        post(CHAT).replace(b"connection: close\r\n", b""),
        post(CHAT, opted_out).replace(b"connection: close\r\n", b""),
    ]
    async with routed(tmp_path) as run, dial(run.port) as client, asyncio.timeout(LIMIT):
        await client.send(b"".join(requests * 3))
        answers = [(await client.reader.readuntil(b"}"))[-13:] for _ in range(6)]
        assert answers == [b'{"id":"lane"}', b'{"id":"prod"}'] * 3


async def test_an_error_of_our_own_is_no_obstacle_for_production(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(routing_module, "question_of", broken)
    async with routed(tmp_path) as run:
        assert (await ask(run.port, post(CHAT))).body == b'{"id":"prod"}'
        assert run.lane == []
        exchange = run.tap.exchanges.get(timeout=LIMIT)
        assert exchange.served is None


async def test_a_page_of_another_lane_routes_nobody(tmp_path: Path) -> None:
    async with routed(tmp_path) as run:
        run.page.write(Split(2, 8, 1.0, 7, MODEL, "http://another/v1"))
        assert (await ask(run.port, post(CHAT))).body == b'{"id":"prod"}'
