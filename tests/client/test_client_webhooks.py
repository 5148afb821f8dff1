"""An agent that the sidecar calls by HTTP: the request is verified, and the agent runs as a replay."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from loops import RunLoop
from serving import serving, until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import slipstream_client as slipstream
from slipstream.webhooks.signature import signed, signing_key

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()
BODY = b'{"task_id": "order-17", "run_id": 0}'
NOW = 1_795_160_052


def headers(body: bytes = BODY, secret: str = SECRET, at: int = NOW) -> dict[str, str]:
    return signed(signing_key(secret), "run_1", at, body)


def verified(body: bytes | str = BODY, given: dict[str, str] | None = None, secret: str = SECRET) -> dict[str, Any]:
    return slipstream.verify_webhook(body, given or headers(), secret, clock=lambda: NOW)


@pytest.mark.parametrize("secret", [SECRET, "any text"])
def test_what_the_sidecar_has_signed_is_accepted(secret: str) -> None:
    expected = {"task_id": "order-17", "run_id": 0}
    assert verified(given=headers(secret=secret), secret=secret) == expected
    assert verified(BODY.decode(), headers(secret=secret), secret) == expected


def test_the_example_of_standard_webhooks_is_accepted() -> None:
    given = {
        "Webhook-Id": "msg_loFOjxBNrRLzqYUf",
        "Webhook-Timestamp": "1731705121",
        "Webhook-Signature": "v1a,bm90IG91cnM= v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=",
    }
    body = '{"event_type":"ping","data":{"success":true}}'
    secret = "whsec_plJ3nmyCDGBKInavdOK15jsl"
    assert slipstream.verify_webhook(body, given, secret, clock=lambda: 1731705121)["event_type"] == "ping"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"body": b'{"task_id": "order-18", "run_id": 0}'}, "no signature is right"),
        ({"secret": "another"}, "no signature is right"),
        ({"given": headers() | {"webhook-id": "run_2"}}, "no signature is right"),
        ({"given": headers() | {"webhook-timestamp": str(NOW + 1)}}, "no signature is right"),
        ({"given": headers() | {"webhook-signature": "v1,no-base64 v1 v2,AAAA"}}, "no signature is right"),
        ({"given": headers() | {"webhook-signature": "v1,ümläut"}}, "no signature is right"),
        ({"given": {"webhook-id": "run_1"}}, "the header webhook-timestamp is missing"),
        ({"given": headers(at=NOW - 301)}, "webhook-timestamp: 301 seconds old"),
        ({"given": headers(at=NOW + 301)}, "webhook-timestamp: 301 seconds ahead"),
        ({"body": b"[]", "given": headers(b"[]")}, "no JSON object"),
        ({"body": b"\xff", "given": headers(b"\xff")}, "no JSON object"),
    ],
)
def test_anything_else_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(slipstream.WebhookError, match=message):
        verified(**changed)


@pytest.mark.parametrize("secret", ["", "whsec_no base64"])
def test_a_secret_that_is_none_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match=r"^secret: "):
        verified(secret=secret)


def test_a_replay_is_entered_by_hand() -> None:
    ran = []

    @slipstream.tool(side_effects=True, blocked="raise")
    def write() -> None:
        ran.append(True)

    assert not slipstream.is_replay()
    with slipstream.replay("a/b c", 3, "https://sidecar.example/slipstream/runs/a%2Fb%20c/3/v1") as run:
        assert slipstream.is_replay()
        with pytest.raises(slipstream.SideEffectBlocked, match="nothing is recorded"):
            write()
    assert not slipstream.is_replay()
    assert [(effect.tool, effect.outcome) for effect in run.side_effects] == [("write", "blocked")]
    assert ran == []
    with (
        pytest.raises(ValueError, match="base_url: expected an address"),
        slipstream.replay("a", 0, "http://b/runs/a/1/v1"),
    ):
        pass


async def test_an_agent_behind_http_is_trained(run_loop: RunLoop) -> None:
    written: list[str] = []

    @slipstream.tool(side_effects=True, fallback="done")
    def write(text: str) -> str:
        written.append(text)
        return "done"

    def agent(question: str) -> str:
        with slipstream.openai() as client:
            said: Any = [{"role": "user", "content": question}]
            answer = client.chat.completions.create(model="prod", messages=said).choices[0].message.content
        return f"{answer}, {write(question)}"

    async def endpoint(request: Request) -> Response:
        told = slipstream.verify_webhook(await request.body(), request.headers, SECRET)

        def again() -> str:
            with slipstream.replay(told["task_id"], told["run_id"], told["base_url"], group_id=told["group_id"]):
                return agent(told["input"])

        output = await asyncio.to_thread(again)
        return JSONResponse({"reward": 1.0 if output.startswith("policy says") else 0.0})

    app = Starlette(routes=[Route("/replay", endpoint, methods=["POST"])])
    async with serving(app) as url:
        webhook = {"url": f"{url}/replay", "secret": SECRET, "allow_private": ["127.0.0.1"]}
        runs = {"mode": "webhook", "repeat_time": 2, "webhook": webhook}
        async with run_loop(runs=runs) as loop:
            slipstream.configure(loop.url)

            def production() -> str:
                with slipstream.mark(task_id="order-17"):
                    return agent("hello")

            assert await asyncio.to_thread(production) == "echo: hello, done"
            await until(lambda: loop.ready(2))
            await loop.commit()
    assert written == ["hello"]
    [delivered] = loop.explorer.committed
    assert [(one["run_id"], one["reward"]) for one in delivered] == [(0, 1.0), (1, 1.0)]
    assert json.dumps([chat["messages"] for chat in loop.explorer.chats]).count("hello") == 2
