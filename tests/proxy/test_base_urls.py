"""Base URLs: Azure's client works before an Azure endpoint, and a wrong one is answered with the right one."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest
from wire import ListTap, Peer, Request, Sidecar, answer, sidecar, upstream

MESSAGES: Any = [{"role": "user", "content": "What is 2+2?"}]
VERSION = "2024-10-21"
COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-4o",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "4"}}],
}


def root(proxy: Sidecar) -> str:
    return proxy.base_url.removesuffix("/v1")


class AnyTap(ListTap):
    """Takes what capture takes: chats at any path."""

    def wants(self, path: str) -> bool:
        return path.endswith("/chat/completions")


class Production:
    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def __call__(self, peer: Peer) -> None:
        while True:
            self.requests.append(await peer.request())
            await peer.send(answer(json.dumps(COMPLETION).encode(), b"content-type: application/json"))


@pytest.mark.parametrize("key", [None, "the-sidecars-own"])
@pytest.mark.parametrize("base", ["/openai", "/openai/v1", "/openai/deployments/gpt-4o"])
async def test_azures_client_asks_an_azure_endpoint(base: str, key: str | None) -> None:
    production, tap = Production(), AnyTap()
    async with upstream(production) as up:
        settings: dict[str, Any] = {"base_url": f"http://127.0.0.1:{up.port}{base}", "api_key": key}
        async with sidecar(up.port, tap=tap, **settings) as proxy:
            async with openai.AsyncAzureOpenAI(
                azure_endpoint=root(proxy), api_key="callers", api_version=VERSION, max_retries=0
            ) as client:
                answered = await client.chat.completions.create(model="gpt-4o", messages=MESSAGES)
            assert answered.choices[0].message.content == "4"
    [request] = production.requests
    assert request.line.split(b" ")[1] == f"/openai/deployments/gpt-4o/chat/completions?api-version={VERSION}".encode()
    sent = {name.lower(): value for name, value in request.fields}
    assert sent[b"api-key"].decode() == (key or "callers")
    assert b"authorization" not in sent
    assert sent[b"host"] == f"127.0.0.1:{up.port}".encode()
    assert (await tap.next()).path == "/openai/deployments/gpt-4o/chat/completions"


@pytest.mark.parametrize(
    "path",
    ["/chat/completions", "/v1/v1/chat/completions", "/api/v1/chat/completions", "/responses", "/openai/v1/embeddings",
     "/openai/deployments/gpt-4o/chat/completions?api-version=1"],
)  # fmt: skip
async def test_a_wrong_base_url_is_answered_with_the_right_one(path: str) -> None:
    production = Production()
    async with upstream(production) as up, sidecar(up.port) as proxy, httpx.AsyncClient() as client:
        for _ in range(2):  # the connection is used again
            refused = await client.post(root(proxy) + path, json={"model": "m", "messages": MESSAGES})
            error = refused.json()["error"]
            assert (refused.status_code, error["code"]) == (404, "wrong_base_url")
            assert f"{proxy.base_url} " in error["message"]
            assert path.partition("?")[0] in error["message"]
    assert production.requests == []


async def test_the_sdk_shows_the_right_base_url() -> None:
    async with (
        upstream(Production()) as up,
        sidecar(up.port) as proxy,
        openai.AsyncOpenAI(base_url=root(proxy), api_key="k", max_retries=0) as client,
    ):
        with pytest.raises(openai.NotFoundError, match=f"expected {proxy.base_url}"):
            await client.chat.completions.create(model="m", messages=MESSAGES)


async def test_a_host_that_is_none_is_not_repeated() -> None:
    async with upstream(Production()) as up, sidecar(up.port) as proxy, httpx.AsyncClient() as client:
        refused = await client.post(root(proxy) + "/chat/completions", json={}, headers={"host": "<script>"})
        assert "<script>" not in refused.text
        assert "http://SIDECAR:8100/v1" in refused.json()["error"]["message"]


async def test_a_production_without_a_version_may_have_one_in_its_paths() -> None:
    production = Production()
    async with (
        upstream(production) as up,
        sidecar(up.port, base_url=f"http://127.0.0.1:{up.port}") as proxy,
        httpx.AsyncClient() as client,
    ):
        assert (await client.post(root(proxy) + "/v1/v1/chat/completions", json={})).status_code == 200
    assert production.requests[0].line.split(b" ")[1] == b"/v1/chat/completions"
