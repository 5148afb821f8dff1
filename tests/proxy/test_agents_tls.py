"""TLS towards agents on uvloop, as a worker runs it: streams, large bodies, agents that leave, plain HTTP."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import trustme
from authorities import Authority
from wire import LIMIT, Peer, Sidecar, answer, sidecar, upstream

from slipstream.settings.listen import ListenTls

MESSAGES: Any = [{"role": "user", "content": "hi"}]
EVENT = b'data: {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [%b]}\n\n'


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(trustme.CA(), tmp_path)


def files(authority: Authority) -> ListenTls:
    return ListenTls.model_validate(authority.issue())


async def echo(peer: Peer) -> None:
    while True:
        await peer.send(answer((await peer.request()).body, b"content-type: application/json"))


def client(side: Sidecar, authority: Authority) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"https://127.0.0.1:{side.port}", verify=authority.client(), timeout=LIMIT)


async def test_large_bodies_pass_both_ways_over_one_connection(authority: Authority) -> None:
    body = os.urandom(5_000_000)
    async with upstream(echo) as up, sidecar(up.port, tls=files(authority)) as side, client(side, authority) as http:
        for _ in range(2):
            assert (await http.post("/v1/chat/completions", content=body)).content == body
        assert (await http.get("/status")).text == "control /status"


async def test_a_stream_arrives_event_by_event(authority: Authority) -> None:
    next_one = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for text in (b"a", b"b"):
            await peer.send(EVENT % (b'{"index": 0, "delta": {"content": "%b"}}' % text))
            await next_one.wait()
            next_one.clear()
        await peer.send(b"data: [DONE]\n\n")
        peer.writer.close()

    async with upstream(script) as up, sidecar(up.port, tls=files(authority)) as side:
        http, got = httpx.AsyncClient(verify=authority.client()), []
        base_url = side.base_url.replace("http:", "https:")
        async with openai.AsyncOpenAI(base_url=base_url, api_key="own", http_client=http) as sdk:
            async with asyncio.timeout(LIMIT):
                async for chunk in await sdk.chat.completions.create(model="m", messages=MESSAGES, stream=True):
                    got.append(chunk.choices[0].delta.content)
                    next_one.set()  # the second is sent only once the first was here
        assert got == ["a", "b"]


async def test_an_agent_that_leaves_cancels_the_call(authority: Authority) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await peer.reader.read()
        gone.set()

    async with upstream(script) as up, sidecar(up.port, tls=files(authority)) as side:
        _, writer = await asyncio.open_connection("127.0.0.1", side.port, ssl=authority.client())
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: s\r\ncontent-length: 2\r\n\r\n{}")
        async with asyncio.timeout(LIMIT):
            await asked.wait()
            writer.close()
            await gone.wait()


async def test_plain_http_is_told_and_others_are_served(authority: Authority) -> None:
    async with upstream(echo) as up, sidecar(up.port, tls=files(authority)) as side:
        async with httpx.AsyncClient(timeout=LIMIT) as plain:
            for body in (b"", b"x" * 300_000):
                told = await plain.post(f"http://127.0.0.1:{side.port}/v1/x", content=body)
                assert (told.status_code, told.json()["error"]["code"]) == (400, "tls_expected")
        async with client(side, authority) as http:
            assert (await http.post("/v1/x", content=b"{}")).content == b"{}"


async def test_a_refusal_of_what_has_not_come_in_full_arrives(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    refused = {
        b"POST /v1/x HTTP/1.1\r\nhost: s\r\ncontent-length: 99000\r\n\r\n" + b"x" * 1000: (b"413", b"y" * 1000),
        b"rubbish\r\n\r\n": (b"400", b"more of it"),
    }
    limits = {"request_body": "2KiB"}
    async with upstream(echo) as up, sidecar(up.port, tls=files(authority), limits=limits) as side:
        for sent, (status, rest) in refused.items():
            reader, writer = await asyncio.open_connection("127.0.0.1", side.port, ssl=authority.client())
            async with asyncio.timeout(LIMIT):
                writer.write(sent)
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.split()[1] == status
                assert b"connection: close" in head
                writer.write(rest)  # is thrown away
                assert (await reader.readuntil(b"}}")).startswith(b'{"error":')
            writer.close()
        await side.metric_reaches(0, "connections")
    assert not [record for record in caplog.records if record.exc_info]


async def test_an_agent_that_does_not_read_is_cut(authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        # More than the sidecar buffers over TLS (128 KiB and one read of 256 KiB) and both kernels' buffers (128 KiB).
        await peer.send(answer(b"x" * 640_000))

    def dialled(port: int) -> ssl.SSLSocket:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
        sock.connect(("127.0.0.1", port))
        agent = authority.client().wrap_socket(sock, server_hostname="127.0.0.1")
        agent.sendall(b"GET /v1/x HTTP/1.1\r\nhost: s\r\n\r\n")
        return agent

    limits = {"answer_timeout": "200ms"}
    async with (
        upstream(script) as up,
        sidecar(up.port, tls=files(authority), limits=limits, send_buffer=32 * 1024) as side,
    ):
        with await asyncio.to_thread(dialled, side.port):
            await side.metric_reaches(1, "refused_total", limit="answer_timeout")
            await side.metric_reaches(0, "connections")


async def test_a_new_certificate_is_taken_and_connections_stay(authority: Authority) -> None:
    tls = files(authority)
    async with upstream(echo) as up, sidecar(up.port, tls=tls) as side, client(side, authority) as kept:
        assert (await kept.get("/v1/x")).status_code == 200
        made = authority.issue("renewed")
        os.replace(made["certificate"], tls.certificate)
        os.replace(made["key"], tls.key)
        names: set[str] = set()
        async with asyncio.timeout(LIMIT):
            while "renewed" not in names:
                _, writer = await asyncio.open_connection("127.0.0.1", side.port, ssl=authority.client())
                subject = writer.get_extra_info("peercert")["subject"]
                names.add(dict(pair for part in subject for pair in part)["commonName"])
                writer.close()
        assert (await kept.get("/v1/x")).status_code == 200
        opened = up.connections
        assert (await kept.get("/v1/x")).status_code == 200
        assert up.connections == opened


async def test_a_strangers_certificate_is_refused(authority: Authority) -> None:
    tls = ListenTls.model_validate({**authority.issue(), "client_ca": str(authority.file)})
    async with upstream(echo) as up, sidecar(up.port, tls=tls) as side:
        for certificate, taken in ((authority.issue("agent"), True), (authority.issue("other", trustme.CA()), False)):
            context: ssl.SSLContext = authority.client(certificate)
            async with httpx.AsyncClient(verify=context, timeout=LIMIT) as http:
                asked = http.get(f"https://127.0.0.1:{side.port}/v1/x")
                if taken:
                    assert (await asked).status_code == 200
                else:
                    with pytest.raises(httpx.TransportError):
                        await asked


async def test_a_silent_client_and_a_broken_handshake_end(authority: Authority) -> None:
    limits = {"header_timeout": "300ms"}
    async with upstream(echo) as up, sidecar(up.port, tls=files(authority), limits=limits) as side:
        for sent in (b"", b"\x16\x03\x01\x02\x00\x01", b"\x16" + os.urandom(600)):
            reader, writer = await asyncio.open_connection("127.0.0.1", side.port)
            writer.write(sent)
            async with asyncio.timeout(LIMIT):
                await reader.read()
            writer.close()
        async with client(side, authority) as http:
            assert (await http.get("/v1/x")).status_code == 200
