import base64
import hashlib
import hmac
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import brotli
import pytest
from pydantic import ValidationError
from reward_runs import WEATHER, score, shadow
from serving import serving
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from slipstream.errors import ConfigError, ScoringError
from slipstream.rewards.calculators.webhook import Webhook
from slipstream.trajectory import Feedback


def webhook(url: str, **parameters: Any) -> dict[str, Any]:
    return {"webhook": {"url": f"{url}/reward", "backoff": 0, "allow_private": True, **parameters}}


async def test_the_service_sees_the_whole_run_and_its_reward_counts(serve: Callable[..., Any]) -> None:
    service = await serve((200, {"reward": 0.75, "breakdown": {"style": 1, "unknown": None}, "note": "ignored"}))
    run = shadow(
        "回答", "production", tools=[WEATHER], metadata={"reference": "x"}, production_feedback=(Feedback(1.0, "好"),)
    )
    reward = await score(run, webhook(service.url, headers={"x-token": "s3cret"}))
    assert reward.value == 0.75
    assert reward.breakdown == {"webhook": 0.75, "webhook.style": 1.0, "webhook.unknown": None}
    (asked,) = service.requests
    assert asked["path"] == "/reward"
    assert service.headers[0]["x-token"] == "s3cret"
    assert (asked["group_id"], asked["run_id"], asked["kind"]) == ("t1/0", 0, "shadow_call")
    assert asked["calls"][0]["answer"]["choices"][0]["message"]["content"] == "回答"
    assert asked["calls"][0]["request"]["tools"] == [WEATHER]
    assert asked["production"]["answer"]["choices"][0]["message"]["content"] == "production"
    assert asked["task"]["metadata"] == {"reference": "x"}
    assert asked["production_feedback"][0]["comment"] == "好"


async def test_half_of_a_surrogate_pair_is_sent_as_it_is(serve: Callable[..., Any]) -> None:
    service = await serve((200, {"reward": 0.5}))
    assert (await score(shadow("a", "half \ud83d"), webhook(service.url))).value == 0.5
    assert service.requests[0]["production"]["answer"]["choices"][0]["message"]["content"] == "half \ud83d"


@pytest.mark.sampled
@pytest.mark.parametrize(
    "rubbish",
    [
        b"ok",
        b"",
        [],
        {},
        0.5,
        {"reward": "0.5"},
        {"reward": True},
        {"reward": None},
        b'{"reward": NaN}',
        b'{"reward": 1e999}',
        {"reward": 1, "breakdown": {"a": "b"}},
        {"reward": 1, "breakdown": []},
    ],
)
async def test_rubbish_is_asked_again_and_never_becomes_a_reward(serve: Callable[..., Any], rubbish: Any) -> None:
    service = await serve((200, rubbish))
    with pytest.raises(ScoringError, match=r"^webhook: an answer that cannot be used"):
        await score(shadow("4"), webhook(service.url, attempts=2))
    assert len(service.requests) == 2


@pytest.mark.slow
async def test_failures_are_tried_again_and_refusals_are_not(serve: Callable[..., Any]) -> None:
    service = await serve((500, {}), None, (200, {"reward": 1}))
    assert (await score(shadow("4"), webhook(service.url, timeout="2s"))).value == 1
    assert len(service.requests) == 3
    service = await serve((403, b"no"))
    with pytest.raises(ScoringError, match=r"^webhook: HTTP 403$"):
        await score(shadow("4"), webhook(service.url))
    assert len(service.requests) == 1


async def test_a_service_that_never_answers_fails_the_scoring(serve: Callable[..., Any]) -> None:
    service = await serve(None)
    with pytest.raises(ScoringError, match=r"^webhook: no answer within 0\.05 s"):
        await score(shadow("4"), webhook(service.url, timeout="50ms", attempts=1))


@pytest.mark.parametrize("secret", ["hunter2\n", "hunter2 ", "密hunter2"])
async def test_a_secret_that_no_header_can_carry_is_refused_at_start_and_not_shown(secret: str) -> None:
    with pytest.raises(ConfigError, match=r"webhook: .* header x-token") as refused:
        await score(shadow("4"), webhook("http://127.0.0.1:9", headers={"x-token": secret}))
    assert "hunter2" not in str(refused.value)


async def test_an_answer_without_end_is_not_kept_in_memory(serve: Callable[..., Any]) -> None:
    service = await serve((200, b" " * 3_000_000 + b'{"reward": 1}'))
    with pytest.raises(ScoringError, match=r"^webhook: an answer of more than 1 MiB"):
        await score(shadow("4"), webhook(service.url, attempts=1))


async def test_a_compressed_answer_is_held_in_memory_no_longer_than_another() -> None:
    bomb = brotli.compress(bytes(64_000_000), quality=1)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(bomb, headers={"content-encoding": "br"})(scope, receive, send)

    async with serving(Starlette(routes=[Mount("/", answer)])) as url:
        tracemalloc.start()
        try:
            with pytest.raises(ScoringError, match=r"^webhook: an answer of more than 1 MiB"):
                await score(shadow("4"), webhook(url, attempts=1))
            assert tracemalloc.get_traced_memory()[1] < 16_000_000
        finally:
            tracemalloc.stop()


async def test_each_request_is_signed_and_named_by_what_it_asks(serve: Callable[..., Any]) -> None:
    service = await serve((503, {}), (200, {"reward": 1}))
    await score(shadow("4"), webhook(service.url, secret="whsec_" + base64.b64encode(b"a key").decode()))
    await score(shadow("5"), webhook(service.url, secret="whsec_" + base64.b64encode(b"a key").decode()))
    names = [headers["webhook-id"] for headers in service.headers]
    assert names[0] == names[1] != names[2], "one name for all tries"
    for headers, body in zip(service.headers, service.bodies, strict=True):
        assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
        told = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        digest = hmac.new(b"a key", told, hashlib.sha256).digest()
        assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"


async def test_a_service_on_this_machine_is_not_asked_unless_that_is_allowed(serve: Callable[..., Any]) -> None:
    service = await serve((200, {"reward": 1}))
    refused = r"^webhook: 127\.0\.0\.1 has the private address 127\.0\.0\.1, which allow_private does not name$"
    with pytest.raises(ScoringError, match=refused):
        await score(shadow("4"), webhook(service.url, allow_private=False))
    assert service.requests == []
    assert (await score(shadow("4"), webhook(service.url, allow_private=["127.0.0.0/8"]))).value == 1


async def test_a_redirect_is_not_followed(serve: Callable[..., Any]) -> None:
    service = await serve((307, {}))
    with pytest.raises(ScoringError, match=r"^webhook: HTTP 307$"):
        await score(shadow("4"), webhook(service.url))


def test_a_secret_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError, match="base64 behind it"):
        Webhook(url="https://rewards.example", secret="whsec_")
