"""TLS towards agents and towards the Explorer, with certificates of an authority that each test makes."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import trustme
from authorities import Authority
from loops import Loop, RunLoop
from scripted import ScriptedExplorer
from serving import serving, until

from slipstream.errors import ConfigError
from slipstream.proxy.tls import Certificates
from slipstream.settings.listen import ListenTls
from slipstream.settings.source import load_settings

MESSAGES: Any = [{"role": "user", "content": "hello"}]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(trustme.CA(), tmp_path)


def listen(tls: dict[str, str]) -> dict[str, Any]:
    return {"listen": {"host": "127.0.0.1", "port": 0, "tls": tls}}


def port_of(loop: Loop) -> int:
    port = httpx.URL(loop.url).port
    assert port is not None
    return port


async def test_the_openai_sdk_calls_streams_and_is_captured_over_https(run_loop: RunLoop, authority: Authority) -> None:
    async with run_loop(verify=authority.client(), **listen(authority.issue())) as loop:
        assert loop.url.startswith("https://")
        http = httpx.AsyncClient(verify=authority.client())
        async with openai.AsyncOpenAI(base_url=f"{loop.url}/v1", api_key="own", http_client=http) as sdk:
            whole = await sdk.chat.completions.create(model="m", messages=MESSAGES)
            pieces = [
                each async for each in await sdk.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            ]
            large = [{"role": "user", "content": "x" * 3_000_000}]
            assert (await sdk.chat.completions.create(model="m", messages=large)).choices  # type: ignore[arg-type]
        assert whole.choices[0].message.content
        assert "".join(each.choices[0].delta.content or "" for each in pieces if each.choices)

        async def captured() -> bool:
            tasks: dict[str, int] = (await loop.status())["tasks"]
            return sum(tasks.values()) >= 2

        await until(captured)


async def test_plain_http_is_told_that_the_port_speaks_tls(run_loop: RunLoop, authority: Authority) -> None:
    async with run_loop(verify=authority.client(), **listen(authority.issue())) as loop:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port_of(loop)}") as client:
            for body in (b"", b"x" * 100_000):
                answer = await client.post("/v1/chat/completions", content=body)
                assert answer.status_code == 400
                assert answer.json()["error"]["code"] == "tls_expected"
                assert "https://" in answer.json()["error"]["message"]
        assert (await loop.client.get("/healthz")).status_code == 200


async def test_a_client_certificate_is_asked_for_and_verified(run_loop: RunLoop, authority: Authority) -> None:
    tls = {**authority.issue(), "client_ca": str(authority.file)}
    known, strangers = authority.issue("agent"), authority.issue("stranger", ca=trustme.CA())
    async with run_loop(verify=authority.client(known), **listen(tls)) as loop:
        assert (await loop.client.get("/v1/models")).status_code == 200
        for certificate in (None, strangers):
            async with httpx.AsyncClient(base_url=loop.url, verify=authority.client(certificate)) as client:
                with pytest.raises(httpx.TransportError):
                    await client.get("/v1/models")
        assert (await loop.client.get("/v1/models")).status_code == 200


async def test_versions_before_1_2_are_refused(run_loop: RunLoop, authority: Authority) -> None:
    async with run_loop(verify=authority.client(), **listen(authority.issue())) as loop:

        async def version(highest: ssl.TLSVersion) -> str | None:
            context = authority.client()
            context.set_ciphers("DEFAULT@SECLEVEL=0")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                context.minimum_version = ssl.TLSVersion.TLSv1
                context.maximum_version = highest
            _, writer = await asyncio.open_connection("127.0.0.1", port_of(loop), ssl=context)
            found: str | None = writer.get_extra_info("ssl_object").version()
            writer.close()
            return found

        assert await version(ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
        assert await version(ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await version(ssl.TLSVersion.TLSv1_1)


class Kept:
    """One connection that is kept, and the name of the certificate that it was shown."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        [[(_, self.name)]] = [
            each for each in writer.get_extra_info("peercert")["subject"] if each[0][0] == "commonName"
        ]

    async def status(self) -> bytes:
        self.writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        await self.reader.readexactly(length)
        return head.partition(b"\r\n")[0]


@pytest.mark.slow
async def test_a_new_certificate_is_taken_and_connections_stay(run_loop: RunLoop, authority: Authority) -> None:
    tls = authority.issue()

    async def dialled() -> Kept:
        return Kept(*await asyncio.open_connection("127.0.0.1", port, ssl=authority.client()))

    def replaced(name: str, *parts: str) -> None:
        made = authority.issue(name)
        for part in parts:
            os.replace(made[part], tls[part])

    async with run_loop(verify=authority.client(), **listen(tls)) as loop:
        port = port_of(loop)
        first = await dialled()
        assert first.name == "server"
        replaced("second", "certificate")  # without its key, as between two writes

        async def shown(name: str) -> bool:
            connection = await dialled()
            connection.writer.close()
            return connection.name == name

        replaced("third", "certificate", "key")
        await until(lambda: shown("third"))
        assert await first.status() == b"HTTP/1.1 200 OK"
        assert await first.status() == b"HTTP/1.1 200 OK"
        first.writer.close()


def test_a_certificate_that_cannot_be_used_changes_nothing(authority: Authority) -> None:
    tls = authority.issue()
    certificates = Certificates(ListenTls.model_validate(tls))
    before = certificates.context
    for text in ("", "no certificate"):
        Path(tls["certificate"]).write_text(text)
        certificates.look()
        assert certificates.context is before
    Path(tls["certificate"]).unlink()
    certificates.look()
    assert certificates.context is before
    authority.issue()
    certificates.look()
    assert certificates.context is not before


async def test_a_handshake_that_does_not_come_ends(run_loop: RunLoop, authority: Authority) -> None:
    limits = {"header_timeout": "200ms", "connections": 1}  # at most 5 handshakes
    async with run_loop(verify=authority.client(), limits=limits, **listen(authority.issue())) as loop:
        silent = [await asyncio.open_connection("127.0.0.1", port_of(loop)) for _ in range(8)]
        half = await asyncio.open_connection("127.0.0.1", port_of(loop))
        half[1].write(b"\x16\x03\x01\x02\x00\x01")
        async with asyncio.timeout(15):
            assert [await reader.read() for reader, _ in (*silent, half)] == [b""] * 9
        for _, writer in (*silent, half):
            writer.close()
        assert (await loop.client.get("/healthz")).status_code == 200


def _without_key(tls: dict[str, str]) -> None:
    Path(tls["key"]).unlink()


def _encrypted(tls: dict[str, str]) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(Path(tls["key"]).read_bytes(), None)
    hidden = serialization.BestAvailableEncryption(b"secret")
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
    Path(tls["key"]).write_bytes(pem)


def _no_authorities(tls: dict[str, str]) -> None:
    tls["client_ca"] = tls["key"]


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (_without_key, r"listen\.tls: expected a certificate and its key in PEM"),
        (_encrypted, r"listen\.tls: expected a certificate and its key in PEM, without a passphrase"),
        (_no_authorities, r"listen\.tls\.client_ca: expected certificates of authorities in PEM"),
    ],
)
def test_files_that_cannot_be_used_are_refused_at_the_start(
    spoil: Callable[[dict[str, str]], None], told: str, authority: Authority
) -> None:
    tls = authority.issue()
    spoil(tls)
    with pytest.raises(ConfigError, match=told):
        Certificates(ListenTls.model_validate(tls))


@pytest.mark.slow
async def test_the_explorer_is_reached_over_tls_with_a_certificate(run_loop: RunLoop, authority: Authority) -> None:
    explorer, server, own = ScriptedExplorer(), authority.issue("explorer"), authority.issue("sidecar")
    tls = {
        "ssl_certfile": server["certificate"],
        "ssl_keyfile": server["key"],
        "ssl_ca_certs": str(authority.file),
        "ssl_cert_reqs": ssl.CERT_REQUIRED,
    }
    async with serving(explorer.app(), **tls) as url:
        given = {"base_url": url, "ca": str(authority.file), **own}
        async with run_loop(explorer, explorer=given) as loop:
            await loop.chat("hello")
            await until(lambda: loop.ready(1))
            assert (await loop.commit())["experiences"] == 1
        async with run_loop(explorer, explorer={"base_url": url, "ca": str(authority.file)}) as loop:

            async def away() -> bool:
                return (await loop.status())["explorer"]["up"] is False

            await until(away)
    assert len(explorer.committed) == 1


@pytest.mark.parametrize(
    ("explorer", "told"),
    [
        ({"ca": "ca.pem"}, "a base_url that begins with https://"),
        ({"base_url": "https://explorer:8010", "certificate": "a.pem"}, "certificate and key, both or neither"),
        ({"base_url": "https://explorer:8010", "ca": "/nowhere/ca.pem"}, "files in PEM as ca, certificate and key"),
    ],
)
def test_files_towards_the_explorer_are_checked(explorer: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=rf"explorer: expected {told}"):
        load_settings(None, {f"SLIPSTREAM_EXPLORER__{name.upper()}": value for name, value in explorer.items()})


@pytest.mark.slow
async def test_the_status_command_speaks_https(run_loop: RunLoop, authority: Authority) -> None:
    async with run_loop(verify=authority.client(), **listen(authority.issue())) as loop:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "slipstream", "status", "--json", "--url", loop.url),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "SSL_CERT_FILE": str(authority.file)},
        )
        out, _ = await process.communicate()
        assert process.returncode == 0
        assert b'"slipstream"' in out
