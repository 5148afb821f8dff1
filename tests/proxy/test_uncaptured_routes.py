"""Calls that capture cannot read are counted by their route."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from framing import echo
from wire import Peer, Request, Sidecar, answer, ask, post, sidecar, upstream

from slipstream.proxy.uncaptured import uncaptured_route


@pytest.mark.parametrize(
    ("target", "route"),
    [
        (b"/v1/chat/completions", None),
        (b"/v1/chat/completions?api-version=1", None),
        (b"/v1/openai/deployments/x/chat/completions", None),
        (b"/v1/responses", None),
        (b"/v1/responses?api-version=1", None),
        (b"/openai/v1/responses", None),
        (b"/v1/responses/resp_1/cancel", "other"),
        (b"/v1/messages", None),
        (b"/v1/messages/count_tokens", "other"),
        (b"/v1/completions", "completions"),
        (b"/v1/threads/t/messages", "threads"),
        (b"/v1/threads/runs", "threads"),
        (b"/v1/embeddings", "embeddings"),
        (b"/v1/audio/speech", "audio"),
        (b"/v1/images/generations", "images"),
        (b"/v1/files", "files"),
        (b"/v1/any-name-that-a-caller-likes", "other"),
        (b"/v1", "other"),
    ],
)
def test_routes(target: bytes, route: str | None) -> None:
    assert uncaptured_route(target) == route


def counted(side: Sidecar) -> dict[str, float]:
    samples = [sample for family in side.registry.collect() for sample in family.samples]
    return {
        sample.labels["route"]: sample.value
        for sample in samples
        if sample.name == "slipstream_proxy_uncaptured_total" and sample.value
    }


async def test_what_production_answered_is_counted_and_nothing_else() -> None:
    async def script(peer: Peer) -> None:
        request: Request = await peer.request()
        refused = b"refused" in request.body
        await peer.send(answer(b"{}", status=b"404 Not Found" if refused else b"200 OK"))

    async with upstream(script) as up, sidecar(up.port) as side:
        for path in (b"/v1/completions", b"/v1/completions", b"/v1/embeddings", b"/v1/x/y", b"/v1/chat/completions"):
            await ask(side.port, post(b"{}", path=path))
        await ask(side.port, post(b"refused", path=b"/v1/completions"))
        await ask(side.port, b"GET /v1/completions HTTP/1.1\r\nhost: s\r\nconnection: close\r\n\r\n")
        await ask(side.port, post(b"{}", path=b"/completions"))  # not production's
        assert counted(side) == {"completions": 2, "embeddings": 1, "other": 1}


@pytest.mark.parametrize("field", [b"x-slipstream-capture: never", b"x-slipstream-select: never"])
async def test_what_is_not_to_be_captured_is_not_missed(field: bytes) -> None:
    async with upstream(echo) as up, sidecar(up.port) as side:
        await ask(side.port, post(b"{}", field, path=b"/v1/completions"))
        assert counted(side) == {}


async def test_the_sdk_that_asks_for_a_completion() -> None:
    reply: Any = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m", "choices": []}

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(answer(json.dumps(reply).encode(), b"content-type: application/json"))

    async with (
        upstream(script) as up,
        sidecar(up.port) as side,
        openai.AsyncOpenAI(base_url=side.base_url, api_key="x") as client,
    ):
        for _ in range(3):
            assert (await client.completions.create(model="m", prompt="hi")).id == "cmpl-1"
        assert counted(side) == {"completions": 3}
