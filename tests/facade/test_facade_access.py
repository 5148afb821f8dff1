"""The facade's key, as the clients of Python send it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import openai
import pytest
import requests
from facade_client import ask
from loops import RunLoop

KEY = "s3cret key/with@signs"
IN_A_URL = "s3cret%20key%2Fwith%40signs"
ROUTES = [
    ("POST", "v1/chat/completions"),
    ("GET", "v1/models"),
    ("POST", "feedback"),
    ("POST", "commit"),
    ("GET", "health"),
    ("GET", "metrics"),
]


@pytest.mark.parametrize(
    "authorization", [None, "Bearer wrong", "Bearer", f"Token {KEY}", "Basic !", "Basic dHJpbml0eTp3cm9uZw=="]
)
async def test_without_the_key_nothing_is_answered(run_loop: RunLoop, authorization: str | None) -> None:
    async with run_loop(facade={"api_key": KEY}) as loop:
        headers = {} if authorization is None else {"authorization": authorization}
        for method, path in ROUTES:
            response = await loop.client.request(method, f"/explorer/{path}", headers=headers)
            assert response.status_code == 401, path
            assert response.headers["www-authenticate"].startswith("Bearer"), path
            assert response.json()["error"]["code"] == "unauthorized", path
            assert KEY not in response.text, path
            assert loop.explorer.chats == [], path


async def test_the_key_as_a_bearer_token(run_loop: RunLoop) -> None:
    async with run_loop(facade={"api_key": KEY}) as loop:
        loop.client.headers["authorization"] = f"Bearer {KEY}"
        await ask(loop)
        assert (await loop.client.get("/explorer/health")).status_code == 200
        assert "authorization" not in loop.explorer.headers[0], "it is the sidecar's, and not the engine's"


async def test_the_key_in_an_address_is_sent_by_the_clients_of_python(run_loop: RunLoop) -> None:
    async with run_loop(facade={"api_key": KEY}) as loop:
        url = loop.url.replace("://", f"://trinity:{IN_A_URL}@") + "/explorer"
        fields: dict[str, Any] = {"model": "policy", "messages": [{"role": "user", "content": "hi"}]}

        def blocking() -> tuple[int, str]:
            with openai.OpenAI(base_url=f"{url}/v1", api_key="EMPTY", max_retries=0) as client:
                said = client.chat.completions.create(**fields).choices[0].message.content
            return requests.get(f"{url}/health", timeout=30).status_code, str(said)

        assert await asyncio.to_thread(blocking) == (200, "policy says 1")
        async with httpx.AsyncClient(timeout=30) as client:
            assert (await client.get(f"{url}/metrics")).status_code == 200
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="EMPTY", max_retries=0) as async_client:
            stream = await async_client.chat.completions.create(**fields, stream=True)
            assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "policysays2"


async def test_no_key_is_asked_for_where_none_is_set(run_loop: RunLoop) -> None:
    async with run_loop(facade={"api_key": ""}) as loop:
        await ask(loop)
        assert (await loop.client.get("/v1/models")).status_code == 200
