"""A sidecar without keys is this machine's programs', and no web page's whose name was made to mean 127.0.0.1."""

from __future__ import annotations

import pytest
from guarded import Kept, RunGuarded, answer_to
from loops import RunLoop
from scripted import production_app
from serving import serving

PAGES = [
    "evil.example",
    "evil.example:8100",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "notlocalhost",
    "a:b:c",
    "[]",
    "[evil.example]:8100",
]

OURS = ["localhost", "LocalHost.:8100", "agents.localhost", "127.0.0.1:8100", "[::1]:8100", "192.168.1.5", ""]

WAYS = [
    ("POST", "/v1/chat/completions"),
    ("POST", "http://localhost/v1/chat/completions"),
    ("DELETE", "/data?session_id=s"),
    ("POST", "/feedback"),
    ("POST", "/commit"),
    ("GET", "/status"),
    ("GET", "/readyz"),
    ("GET", "/healthz"),
]


async def told(url: str, request: bytes) -> tuple[int, str]:
    """The status of a request's answer, and the answer."""
    answer = (await answer_to(url, request)).decode()
    return int(answer.split()[1]), answer


def asked(method: str, target: str, host: str, field: str = "") -> bytes:
    fields = f"Host: {host}\r\nConnection: close\r\n{field}"
    return f"{method} {target} HTTP/1.1\r\n{fields}\r\n".encode()


async def test_a_page_that_came_from_elsewhere_is_answered_nothing(run_loop: RunLoop) -> None:
    production = Kept()
    async with (
        serving(production.wrap(production_app())) as production_url,
        run_loop(production={"base_url": f"{production_url}/v1"}) as loop,
    ):
        wrong = []
        for host in PAGES:
            for method, target in WAYS:
                status, answer = await told(loop.url, asked(method, target, host))
                if status != 403 or "slipstream_host_unknown" not in answer:
                    wrong.append(f"{method} {target} of {host}: {answer}")
        assert wrong == []
        assert production.heads == []
        metrics = (await loop.client.get("/metrics")).text
    assert f'slipstream_key_requests_total{{key="(none)",outcome="forbidden"}} {len(PAGES) * len(WAYS)}.0' in metrics
    assert "DNS rebinding" in answer


@pytest.mark.sampled
@pytest.mark.parametrize("host", OURS)
async def test_what_nobody_can_point_elsewhere_is_let_in(host: str, run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        assert (await told(loop.url, asked("GET", "/v1/models", host)))[0] == 200
        assert (await told(loop.url, asked("GET", "/status", host)))[0] == 200


async def test_a_program_that_names_no_host_is_let_in(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        assert (await told(loop.url, b"GET /status HTTP/1.0\r\n\r\n"))[0] == 200


async def test_insecure_takes_any_name(run_loop: RunLoop) -> None:
    async with run_loop(access={"insecure": True}) as loop:
        assert (await told(loop.url, asked("GET", "/v1/models", "host.docker.internal:8100")))[0] == 200


async def test_with_keys_the_key_decides(run_guarded: RunGuarded) -> None:
    async with run_guarded() as guarded:
        key = f"x-slipstream-key: {guarded.keys['proxy']}\r\n"
        assert (await told(guarded.loop.url, asked("GET", "/v1/models", "llm.example", key)))[0] == 200
        assert (await told(guarded.loop.url, asked("GET", "/v1/models", "localhost")))[0] == 401
