"""Agents' clients follow redirects with every header but `Authorization`: a key of ours never leaves that way."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest
from guarded import Guarded, RunGuarded
from serving import serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse
from starlette.routing import Route

from slipstream.proxy.redirects import leads_away

ASKED: Any = [{"role": "user", "content": "hello"}]


class Elsewhere:
    """A host that production redirects to, and what came there."""

    def __init__(self) -> None:
        self.heads: list[dict[str, str]] = []

    async def answer(self, request: Request) -> JSONResponse:
        self.heads.append(dict(request.headers))
        return JSONResponse({"object": "list", "data": []})


@asynccontextmanager
async def redirected(run_guarded: RunGuarded, status: int = 307, **sections: Any) -> AsyncIterator[tuple[Guarded, Any]]:
    """A sidecar with keys whose production redirects everything to another host."""
    other = Elsewhere()
    methods = ["GET", "POST"]
    async with serving(Starlette(routes=[Route("/{path:path}", other.answer, methods=methods)])) as there:

        async def away(request: Request) -> RedirectResponse:
            return RedirectResponse(f"{there}{request.url.path}", status)

        app = Starlette(routes=[Route("/{path:path}", away, methods=methods)])
        async with serving(app) as url, run_guarded(production={"base_url": f"{url}/v1"}, **sections) as guarded:
            yield guarded, other


@pytest.mark.sampled
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_the_documented_openai_client_takes_no_key_to_another_host(status: int, run_guarded: RunGuarded) -> None:
    async with redirected(run_guarded, status) as (guarded, other):
        headers = guarded.key("proxy")
        async with openai.AsyncOpenAI(
            base_url=f"{guarded.loop.url}/v1", api_key="sk-production", default_headers=headers, max_retries=0
        ) as client:
            with pytest.raises(openai.InternalServerError, match=r"it redirects to http://127\.0\.0\.1:") as refused:
                await client.chat.completions.create(model="m", messages=ASKED)

        def plain() -> None:
            with openai.OpenAI(
                base_url=f"{guarded.loop.url}/v1", api_key="sk-production", default_headers=headers, max_retries=0
            ) as client:
                client.models.list()

        with pytest.raises(openai.InternalServerError, match=r"production\.base_url"):
            await asyncio.to_thread(plain)
        metrics = (await guarded.loop.client.get("/metrics", headers=guarded.key("admin"))).text
    assert (refused.value.status_code, refused.value.code) == (502, "redirect")
    assert other.heads == []
    assert 'slipstream_proxy_upstream_errors_total{cause="redirect"} 2.0' in metrics


@pytest.mark.slow
async def test_nodes_fetch_takes_no_key_to_another_host(run_guarded: RunGuarded) -> None:
    node = shutil.which("node")
    assert node is not None, "node is missing"
    async with redirected(run_guarded) as (guarded, other):
        script = """
            const [url, key] = process.argv.slice(1);
            const answer = await fetch(url, {
                method: "POST", body: "{}", headers: {"x-slipstream-key": key, "authorization": "Bearer sk-production"},
            });
            console.log(answer.status, (await answer.json()).error.code);
        """
        process = await asyncio.create_subprocess_exec(
            *(node, "--input-type=module", "--eval", script),
            *(f"{guarded.loop.url}/v1/chat/completions", guarded.keys["proxy"]),
            stdout=asyncio.subprocess.PIPE,
        )
        printed, _ = await asyncio.wait_for(process.communicate(), 60)
    assert printed.decode().split() == ["502", "redirect"]
    assert other.heads == []


async def test_a_key_in_another_field_is_not_taken_along_either(run_guarded: RunGuarded) -> None:
    async with (
        redirected(run_guarded) as (guarded, other),
        httpx.AsyncClient(base_url=guarded.loop.url, follow_redirects=True) as client,
    ):
        for field in ("api-key", "x-api-key", "x-slipstream-key"):
            headers = {field: guarded.keys["proxy"], "authorization": "Bearer sk-production"}
            answer = await client.post("/v1/chat/completions", headers=headers, json={})
            assert (answer.status_code, answer.json()["error"]["code"]) == (502, "redirect")
    assert other.heads == []


async def test_a_sidecar_that_asks_for_no_key_does_not_let_one_go_elsewhere(run_guarded: RunGuarded) -> None:
    async with (
        redirected(run_guarded, access={"keys": []}) as (guarded, other),
        httpx.AsyncClient(base_url=guarded.loop.url, follow_redirects=True) as client,
    ):
        kept = await client.get("/v1/models", headers=guarded.key("proxy"))
        followed = await client.get("/v1/models")
    assert (kept.status_code, followed.status_code) == (502, 200)
    assert len(other.heads) == 1
    assert "x-slipstream-key" not in other.heads[0]


async def test_the_connection_serves_the_next_call_and_a_long_body_does_not_matter(run_guarded: RunGuarded) -> None:
    async with (
        redirected(run_guarded) as (guarded, other),
        httpx.AsyncClient(base_url=guarded.loop.url, headers=guarded.key("proxy")) as client,
    ):
        for _ in range(3):
            answer = await client.post("/v1/chat/completions", content=b"x" * 2_000_000)
            assert answer.status_code == 502
    assert other.heads == []


STAYS = [
    b"/v1/x",
    b"x/y",
    b"?next=http://evil",
    b"#x",
    b"/a:b",
    b"./a:b",
    b"",
    b"http://Side:8100/v1",
    b"//side:8100/x",
]

LEAVES = {
    b"http://evil/v1": "http://evil",
    b"HTTPS://evil:443": "HTTPS://evil:443",
    b"//evil/x": "//evil",
    b"///evil": "///evil",
    b"/\\evil": "/\\evil",
    b"\\\\evil": "\\\\evil",
    b" /\t/evil": "//evil",
    b"http:evil": "http:evil",
    b"http://side:8100@evil/": "evil",
    b"http://user:hunter2@evil/?token=s3cret": "evil",
    b"http://side:81": "http://side:81",
    b"ftp:x": "ftp:x",
}


@pytest.mark.parametrize("place", STAYS)
def test_a_redirect_within_the_sidecar_is_the_callers_to_follow(place: bytes) -> None:
    assert leads_away([(b"Location", place)], [(b"Host", b"side:8100")]) is None


@pytest.mark.parametrize("place", LEAVES)
def test_a_redirect_to_another_host_is_recognised(place: bytes) -> None:
    assert leads_away([(b"location", b"/here"), (b"LOCATION", place)], [(b"host", b"side:8100")]) == LEAVES[place]


def test_an_answer_without_a_location_leads_nowhere() -> None:
    assert leads_away([(b"content-length", b"0")], [(b"host", b"side:8100")]) is None
