"""Where webhooks may go: what a name means is looked at when the connection is made, and nowhere else is gone to."""

from __future__ import annotations

import asyncio
import socket
import ssl
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter, ValidationError
from serving import serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from slipstream.webhooks.outgoing import AllowPrivate, TargetRefused, is_public, outgoing_client


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("64:ff9b::5db8:d822", True),  # NAT64 of a public one
        ("127.0.0.1", False),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),  # metadata of AWS, Azure and Google
        ("100.100.100.200", False),  # of Alibaba
        ("192.0.0.192", False),  # of Oracle
        ("168.63.129.16", False),  # Azure's platform, which hands out keys
        ("168.63.129.17", True),
        ("161.26.0.10", False),  # IBM Cloud's own network
        ("166.9.0.1", False),
        ("192.88.99.1", False),
        ("100.64.0.1", False),
        ("198.18.0.1", False),
        ("0.1.2.3", False),
        ("224.0.0.1", False),
        ("233.252.0.1", False),
        ("255.255.255.255", False),
        ("240.0.0.1", False),
        ("::", False),
        ("::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:169.254.169.254", False),
        ("::127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("::ffff:168.63.129.16", False),
        ("64:ff9b::a83f:8110", False),
        ("64:ff9b:1::7f00:1", False),  # NAT64 of one network
        ("2002:7f00:1::", False),
        ("2002:a83f:8110::1", False),
        ("2606:4700::5efe:a9fe:a9fe", False),  # ISATAP
        ("2606:4700::200:5efe:7f00:1", False),
        ("2606:4700::5efe:5db8:d822", True),
        ("::ffff:0:7f00:1", False),
        ("100::1", False),
        ("3fff::1", False),
        ("5f00::1", False),
        ("4000::1", False),
        ("2001:db8::1", False),
        ("2001:0:53aa:64c:0:1:80ff:fffe", False),  # Teredo
        ("fd00:ec2::254", False),  # metadata of AWS
        ("fd20:ce::254", False),  # of Google
        ("fe80::a9fe:a9fe", False),
        ("fe80::1", False),
        ("fe80::1%eth0", False),
        ("fec0::1", False),
        ("ff02::1", False),
    ],
)
def test_what_is_public(address: str, public: bool) -> None:
    assert is_public(ip_address(address)) is public


class Service:
    """Says whom it was asked as, and redirects where it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.location = ""

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/hook", self._hook, methods=["POST"])])

    async def _hook(self, request: Request) -> Response:
        self.asked.append(request.headers["host"])
        if self.location:
            return RedirectResponse(self.location, 307)
        return PlainTextResponse(await request.body())


def _resolve(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Let a name have these addresses, the next ones at each lookup; returns the names that are asked for."""
    asked: list[str] = []
    left = list(answers)

    async def getaddrinfo(self: Any, host: str, port: int | None, **_: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port or 0)) for address in left.pop(0)]

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return asked


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"])
async def test_this_machine_is_refused_however_it_is_written(host: str) -> None:
    service = Service()
    async with serving(service.app()) as url, outgoing_client(False) as client:
        with pytest.raises(TargetRefused, match=r"private address .* which allow_private does not name"):
            await client.post(url.replace("127.0.0.1", host) + "/hook")
    assert service.asked == []


@pytest.mark.parametrize(
    "allowed", [True, ("localhost",), ("LOCALHOST",), ("127.0.0.1", "::1"), ("127.0.0.0/8", "::1/128")], ids=str
)
async def test_what_is_allowed_is_reached_under_its_name(allowed: bool | tuple[str, ...]) -> None:
    service = Service()
    async with serving(service.app()) as url, outgoing_client(allowed) as client:
        for body in ("one", "two"):
            answer = await client.post(url.replace("127.0.0.1", "localhost") + "/hook", content=body)
            assert answer.text == body
    assert [host.partition(":")[0] for host in service.asked] == ["localhost", "localhost"]


async def test_a_name_that_turns_private_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: the address that was looked at is the one that is connected to, and the next request looks anew.
    127.0.0.2 stands for a public address here."""
    service = Service()
    async with serving(service.app()) as url, outgoing_client(("127.0.0.2",)) as client:
        port = url.rpartition(":")[2]
        with socket.create_server(("127.0.0.2", int(port))) as elsewhere:
            elsewhere.settimeout(30)
            asked = _resolve(monkeypatch, ["127.0.0.2"], ["127.0.0.1"], ["127.0.0.2", "127.0.0.1"])
            told = asyncio.create_task(client.post(f"http://hooks.example:{port}/hook"))
            connection, _ = await asyncio.to_thread(elsewhere.accept)
            with connection:
                assert asked == ["hooks.example"], "it is looked up once, and that address is connected to"
                connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
                assert (await told).status_code == 204
        for _ in range(2):  # it means this machine now; one address among several is enough
            with pytest.raises(TargetRefused, match=r"hooks\.example has the private address 127\.0\.0\.1"):
                await client.post(f"http://hooks.example:{port}/hook")
    assert service.asked == []


async def test_the_next_address_is_tried_where_nobody_is_at_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service()
    async with serving(service.app()) as url, outgoing_client(("127.0.0.0/8",)) as client:
        _resolve(monkeypatch, ["127.0.0.3", "127.0.0.1"], ["127.0.0.3"])
        hook = url.replace("127.0.0.1", "hooks.example") + "/hook"
        assert (await client.post(hook, content="body")).text == "body"
        with pytest.raises(httpx.ConnectError):
            await client.post(hook)


async def test_no_redirect_is_followed() -> None:
    service, inner = Service(), Service()
    async with serving(service.app()) as url, serving(inner.app()) as inner_url:
        service.location = f"{inner_url}/hook"
        for allowed in (True, ("127.0.0.1",)):
            async with outgoing_client(allowed) as client:
                assert (await client.post(f"{url}/hook")).status_code == 307
    assert inner.asked == []


async def test_tls_is_for_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = await asyncio.create_subprocess_shell(
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {key} -out {certificate} "
        "-days 2 -subj /CN=hooks -addext subjectAltName=DNS:hooks.example",
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await made.wait() == 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    names: list[Any] = []
    context.sni_callback = lambda _, name, __: names.append(name)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    _resolve(monkeypatch, ["127.0.0.1"], ["127.0.0.1"])
    async with server, outgoing_client(("127.0.0.1",)) as client:
        assert (await client.post(f"https://hooks.example:{port}/")).status_code == 204
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await client.post(f"https://others.example:{port}/")
    assert names == ["hooks.example", "others.example"]


@pytest.mark.parametrize("value", [True, False, ["hooks.internal", "10.0.0.0/8", "::1"]], ids=str)
def test_what_may_be_allowed(value: Any) -> None:
    TypeAdapter(AllowPrivate).validate_python(value)


@pytest.mark.parametrize("value", ["yes", 1, ["10.0.0.0/33"], ["10.0.0.1/8"], [""], [1]], ids=str)
def test_what_may_not(value: Any) -> None:
    with pytest.raises(ValidationError, match=r"true, false, or a list|a network such as"):
        TypeAdapter(AllowPrivate).validate_python(value)
