"""Whatever a lane does, each user has an answer: the lane's, or production's to the very request that was sent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from lanes import ASKED, CHAT, by_lane, routed
from msgspec.structs import replace
from peer import Peer, Script
from ports import free_port
from wire import LIMIT, ListTap, answer, ask, dial, post, until

from slipstream.http.connection import Connection
from slipstream.http.pool import Pool
from slipstream.proxy.serving_metrics import FallbackCause

SECRETS = (b"authorization: Bearer sk-1", b"x-api-key: sk-2", b"cookie: session=sk-3", b"x-slipstream-key: slp_4")
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def says(data: bytes, *, closes: bool = False) -> Script:
    async def script(peer: Peer) -> None:
        await peer.send(data)
        if closes:
            peer.writer.close()
            await peer.gone()

    return script


async def hangs(peer: Peer) -> None:
    await peer.gone()


async def resets(peer: Peer) -> None:
    peer.reset()


async def test_the_lane_gets_the_request_with_its_own_model_and_no_secret(tmp_path: Path) -> None:
    fields = (*SECRETS, b"x-slipstream-session-id: s", b"accept: text/event-stream", b"content-type: application/json")
    async with routed(tmp_path) as run:
        got = await ask(run.port, post(CHAT, *fields, path=b"/v1/chat/completions?api-key=sk-5"))
        assert (got.status, got.body) == (200, b'{"id":"lane"}')
        assert not got.values(b"x-slipstream-variant"), "it was not asked for"
        (request,) = run.lane
        assert run.production == []
        assert request.body == ASKED
        assert request.line == b"POST /v1/chat/completions HTTP/1.1"
        assert {name for name, _ in request.fields} == {b"host", b"accept", b"content-type", b"content-length"}
        assert b"sk-" not in request.head
        assert b"slp_" not in request.head
        exchange = run.tap.exchanges.get(timeout=LIMIT)
        assert exchange.request_body == CHAT, "captured as the agent sent it"
        assert exchange.response_body == b'{"id":"lane"}'
        assert exchange.served is not None
        assert (exchange.served.variant, exchange.served.arm) == ("version:8", "treatment")
        assert not exchange.served.failed


@pytest.mark.parametrize(
    ("lane", "cause"),
    [
        pytest.param(hangs, "timeout", id="hangs"),
        pytest.param(resets, "closed", id="resets"),
        pytest.param(says(b"", closes=True), "closed", id="closes"),
        pytest.param(says(b"HTTP/1.1 200 OK\r\ncontent-le", closes=True), "closed", id="dies in its head"),
        pytest.param(says(answer(b"no", status=b"500 Internal Server Error")), "status", id="500"),
        pytest.param(says(answer(b"no", status=b"404 Not Found")), "status", id="404"),
        pytest.param(says(answer(b"no", status=b"429 Too Many Requests")), "status", id="429"),
        pytest.param(says(answer(b"", b"location: /x", status=b"307 Temporary Redirect")), "status", id="redirects"),
        pytest.param(says(b"\x16\x03\x01\x02\x00rubbish\r\n\r\n"), "protocol", id="rubbish"),
        pytest.param(says(b"HTTP/1.1 999 What\r\n\r\n"), "protocol", id="no status"),
        pytest.param(says(answer(b"")), "protocol", id="says nothing"),
        pytest.param(says(b"HTTP/1.1 204 No Content\r\n\r\n"), "protocol", id="204"),
        pytest.param(says(STREAM + b"0\r\n\r\n"), "protocol", id="ends behind its head"),
        pytest.param(says(STREAM), "timeout", id="hangs behind its head"),
        pytest.param(says(STREAM, closes=True), "closed", id="dies behind its head"),
        pytest.param(
            says(b"HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n2\r\nno\r\n"), "status", id="500 without an end"
        ),
    ],
)
@pytest.mark.parametrize("size", [0, 100_000], ids=["short", "long"])
async def test_production_answers_where_the_lane_does_not(
    tmp_path: Path, lane: Script, cause: FallbackCause, size: int
) -> None:
    body = CHAT.replace(b"hello", b"hello" + b"x" * size)
    async with routed(tmp_path, lane, first_byte_timeout=0.3) as run:
        got = await ask(run.port, post(body, *SECRETS))
        assert (got.status, got.body) == (200, b'{"id":"prod"}')
        (request,) = run.production
        assert request.body == body, "byte for byte what the agent sent"
        assert request.values(b"authorization") == [b"Bearer sk-1"]
        served = run.tap.exchanges.get(timeout=LIMIT).served
        assert served is not None
        assert (served.variant, served.arm, served.fell_back, served.failed) == ("production", "treatment", True, True)
        assert run.count("fallbacks_total", cause=cause) == 1
        assert run.count("failures_total", arm="treatment") == run.count("requests_total", arm="treatment") == 1


async def test_production_answers_where_nothing_listens(tmp_path: Path) -> None:
    async with routed(tmp_path, free_port()) as run:
        assert (await ask(run.port, post(CHAT))).body == b'{"id":"prod"}'
        assert run.count("fallbacks_total", cause="connect") == 1


async def test_a_lane_that_closed_an_idle_connection_is_asked_over_another_one(tmp_path: Path) -> None:
    closing = asyncio.Event()

    async def lane(peer: Peer) -> None:
        await by_lane(peer)
        if not closing.is_set():
            closing.set()
            await peer.request()
            peer.writer.close()  # as it gets the next request, which had no answer yet
            await peer.gone()

    async with routed(tmp_path, lane) as run:
        for _ in range(2):
            assert (await ask(run.port, post(CHAT))).body == b'{"id":"lane"}'
        assert run.count("failures_total", arm="treatment") == 0


async def test_an_answer_that_the_lane_has_begun_is_cut_and_counted_where_it_ends(tmp_path: Path) -> None:
    first = b"data: one\n\n"

    async def lane(peer: Peer) -> None:
        await peer.send(STREAM + b"%x\r\n%b\r\n" % (len(first), first))
        peer.reset()

    async with routed(tmp_path, lane) as run:
        got = await ask(run.port, post(CHAT))
        assert got.status == 200
        assert got.received in (b"", first)
        with pytest.raises(EOFError):
            _ = got.body
        assert run.production == [], "the user has seen a part of another answer"
        served = run.tap.exchanges.get(timeout=LIMIT).served
        assert served is not None
        assert (served.variant, served.failed, served.fell_back) == ("version:8", True, False)
        assert run.side.registry.get_sample_value("slipstream_proxy_upstream_errors_total", {"cause": "closed"}) == 0


async def test_a_stream_of_the_lane_passes_as_it_comes(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def lane(peer: Peer) -> None:
        await peer.send(STREAM + b"3\r\none\r\n")
        await go.wait()
        await peer.send(b"3\r\ntwo\r\n0\r\n\r\n")

    async with routed(tmp_path, lane, first_byte_timeout=0.3) as run, dial(run.port) as client:
        async with asyncio.timeout(LIMIT):
            await client.send(post(CHAT))
            assert await client.reader.readuntil(b"one\r\n")
            await asyncio.sleep(0.4)  # longer than an answer may take to begin
            go.set()
            assert await client.reader.readuntil(b"two\r\n0\r\n\r\n")


async def test_both_arms_wait_for_the_first_byte_of_a_body(tmp_path: Path) -> None:
    async def slow(peer: Peer) -> None:
        await peer.send(STREAM)
        await asyncio.sleep(0.2)
        await peer.send(b"3\r\none\r\n0\r\n\r\n")

    async with routed(tmp_path, slow, production=slow) as run:
        for share in (1.0, 0.0001):
            run.page.write(replace(run.whole, share=share))
            assert (await ask(run.port, post(CHAT))).body == b"one"
            served = run.tap.exchanges.get(timeout=LIMIT).served
            assert served is not None
            assert (served.arm, served.failed) == ("treatment" if share == 1.0 else "control", False)
            assert served.waited >= 0.2


async def test_a_lane_that_keeps_failing_is_left_alone(tmp_path: Path) -> None:
    async with routed(tmp_path, says(answer(b"", status=b"503 No")), failures=3) as run:
        for _ in range(10):
            assert (await ask(run.port, post(CHAT))).body == b'{"id":"prod"}'
        assert len(run.lane) == 3
        assert run.count("fallbacks_total", cause="breaker") == 7
        assert run.count("failures_total", arm="treatment") == 10, "they count as the version's all the same"


async def test_another_share_begins_with_a_lane_that_has_not_failed(tmp_path: Path) -> None:
    """What the version before did would end the rollout of this one."""
    status = [b"503 No"]

    async def lane(peer: Peer) -> None:
        await (by_lane(peer) if status == [b"200 OK"] else peer.send(answer(b"", status=status[0])))

    async with routed(tmp_path, lane, failures=2) as run:
        for _ in range(3):
            assert (await ask(run.port, post(CHAT))).body == b'{"id":"prod"}'
        assert run.count("fallbacks_total", cause="breaker") == 1
        status[0] = b"200 OK"
        run.page.write(replace(run.whole, epoch=2, version=9))
        assert (await ask(run.port, post(CHAT))).body == b'{"id":"lane"}'
        assert run.count("fallbacks_total", cause="breaker") == 1


async def test_requests_that_the_lane_takes_for_faulty_do_not_have_it_left_alone(tmp_path: Path) -> None:
    """One caller who repeats such a request must not take the version from all others."""
    async with routed(tmp_path, says(answer(b"", status=b"422 No")), failures=3) as run:
        for _ in range(5):
            assert (await ask(run.port, post(CHAT))).body == b'{"id":"prod"}'
        assert len(run.lane) == 5
        assert run.count("fallbacks_total", cause="refused") == 5
        assert run.count("failures_total", arm="treatment") == 5, "they count as the version's all the same"


async def test_a_caller_who_leaves_cancels_the_lanes_work(tmp_path: Path) -> None:
    gone = asyncio.Event()

    async def lane(peer: Peer) -> None:
        await peer.gone()
        gone.set()

    async with routed(tmp_path, lane) as run:
        async with dial(run.port) as client:
            await client.send(post(CHAT))
            await until(lambda: bool(run.lane))
        async with asyncio.timeout(LIMIT):
            await gone.wait()
        assert run.production == []


@pytest.mark.parametrize("rate", [1.0, 1e-9], ids=["captured", "left out by the rate"])
@pytest.mark.parametrize("share", [1.0, 0.0001], ids=["lane", "production"])
async def test_a_caller_who_leaves_with_the_end_of_a_stream_had_a_whole_answer(
    tmp_path: Path, share: float, rate: float
) -> None:
    """Its connection is kept, as without a share."""
    connections = set[Peer]()

    async def streams(peer: Peer) -> None:
        connections.add(peer)
        await peer.send(STREAM + b"e\r\ndata: [DONE]\n\n\r\n")
        await asyncio.sleep(0.05)
        await peer.send(b"0\r\n\r\n")

    async with routed(tmp_path, streams, production=streams, share=share, tap=ListTap(rate)) as run:
        for _ in range(3):
            async with dial(run.port) as client, asyncio.timeout(LIMIT):
                await client.send(post(CHAT))
                await client.reader.readuntil(b"[DONE]\n\n")
            exchange = run.tap.exchanges.get(timeout=LIMIT)
            assert exchange.complete
            assert exchange.served is not None
            assert exchange.served.alone is (rate < 1)
            assert not exchange.served.failed
            await asyncio.sleep(0.1)  # the connection's answer ends
        assert len(connections) == 1


async def test_nothing_reaches_the_lane_after_a_kill(tmp_path: Path) -> None:
    async with routed(tmp_path) as run:
        assert (await ask(run.port, post(CHAT))).body == b'{"id":"lane"}'
        run.page.stop(noted=True)
        for _ in range(3):
            assert (await ask(run.port, post(CHAT))).body == b'{"id":"prod"}'
        assert len(run.lane) == 1
        run.page.release(unnoted=True)
        assert (await ask(run.port, post(CHAT))).body == b'{"id":"lane"}'
        run.page.write(None)
        assert (await ask(run.port, post(CHAT))).body == b'{"id":"prod"}'


async def test_a_kill_reaches_the_workers_while_the_control_api_is_away(tmp_path: Path) -> None:
    kill = post(b"{}", path=b"/serving/kill")
    async with routed(tmp_path, control=tmp_path / "nobody") as run:
        got = await ask(run.port, kill)
        assert (got.status, got.json()) == (202, {"killed": True, "noted": False})
        assert run.page.unnoted
        assert (await ask(run.port, post(CHAT))).body == b'{"id":"prod"}'
        revive = await ask(run.port, post(b"{}", path=b"/serving/revive"))
        assert revive.status == 502, "only the control API takes it back"
        assert run.page.unnoted


async def test_a_request_that_waits_for_a_connection_during_a_kill_goes_to_production(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is read again when the connection is there, before anything is sent."""
    async with routed(tmp_path) as run:
        opened = Pool.opened

        async def killed_meanwhile(pool: Pool) -> Connection:
            connection = await opened(pool)
            run.page.stop(noted=True)
            return connection

        monkeypatch.setattr(Pool, "opened", killed_meanwhile)
        assert (await ask(run.port, post(CHAT))).body == b'{"id":"prod"}'
        assert run.lane == []
        assert run.count("fallbacks_total", cause="stopped") == 1
