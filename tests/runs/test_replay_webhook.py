"""The webhook mode: an endpoint runs the agents of selected tasks again, and is told which in a signed request."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest
from loops import Loop, RunLoop
from pydantic import ValidationError
from replaying import ask, open_runs, replay
from scripted import ScriptedExplorer
from serving import serving, until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from stores import ON_BOTH_STORES

from slipstream.config.settings import Settings
from slipstream.runs.signature import signed, signing_key

SECRET = "whsec_" + base64.b64encode(b"a key of some length").decode()


class Endpoint:
    """An endpoint that runs its agent again.

    Attributes:
        answers: statuses and bodies (bytes are said to be compressed) of its next answers; then `{"reward": 0.75}`.
        calls: how many the agent makes before it answers.
        told: the requests that came, and `headers` theirs.
        hold: while it is not set, nothing is answered.
    """

    def __init__(self, *answers: tuple[int, Any], calls: int = 2) -> None:
        self.answers = list(answers)
        self.calls = calls
        self.told: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.sidecar = ""
        self.at_once = self.most_at_once = 0
        self.hold = asyncio.Event()
        self.hold.set()

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/replay", self._replay, methods=["POST"])])

    async def _replay(self, request: Request) -> Response:
        self.bodies.append(await request.body())
        self.headers.append(dict(request.headers))
        told = json.loads(self.bodies[-1])
        self.told.append(told)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.hold.wait()
        status, body = self.answers.pop(0) if self.answers else (200, {"reward": 0.75})
        url = self.sidecar + urlsplit(told["base_url"]).path
        async with openai.AsyncOpenAI(base_url=url, api_key="-", max_retries=0) as client:
            for step in range(self.calls):
                await ask(client, f"step {step}")
        self.at_once -= 1
        if isinstance(body, bytes):
            return Response(body, status, {"content-encoding": "gzip"})
        return Response(status_code=status) if body is None else JSONResponse(body, status)


@asynccontextmanager
async def webhook_loop(
    run_loop: RunLoop,
    endpoint: Endpoint,
    webhook: dict[str, Any] | None = None,
    explorer: ScriptedExplorer | None = None,
    commit: dict[str, Any] | None = None,
    **runs: Any,
) -> AsyncIterator[Loop]:
    async with serving(endpoint.app()) as url:
        told = {"url": f"{url}/replay", "secret": SECRET, "base_url": "http://sidecar.example", "allow_private": True}
        told |= webhook or {}
        sections = {
            "runs": {"mode": "webhook", "webhook": told, **runs},
            "commit": {"interval": "1h", **(commit or {})},
        }
        async with run_loop(explorer, **sections) as loop:
            endpoint.sidecar = loop.url
            yield loop


async def ended(loop: Loop, task_id: str, *states: str) -> list[dict[str, Any]]:
    """The runs of the task, once they are in these states."""

    async def there() -> Any:
        task = await loop.task(task_id)
        runs = [run for group in (task or {"groups": []})["groups"] for run in group["runs"]]
        return runs if sorted(run["state"] for run in runs) == sorted(states) else None

    found: list[dict[str, Any]] = await until(there)
    return found


@ON_BOTH_STORES
async def test_a_selected_task_is_run_again_by_its_endpoint(run_loop: RunLoop) -> None:
    endpoint = Endpoint()
    async with webhook_loop(run_loop, endpoint, repeat_time=2) as loop:
        await loop.chat("Where is my parcel?", {"x-slipstream-task-id": "t", "x-slipstream-mark": "parcel",
                                                "x-slipstream-metadata": '{"reference": "42"}'})  # fmt: skip
        runs = await ended(loop, "t", "scored", "scored")
        assert sorted(told["run_id"] for told in endpoint.told) == [0, 1]
        assert {**endpoint.told[0], "run_id": 0, "base_url": ""} == {
            "task_id": "t", "run_id": 0, "base_url": "", "input": "Where is my parcel?",
            "metadata": {"reference": "42"}, "labels": ["parcel"],
        }  # fmt: skip
        assert {told["base_url"] for told in endpoint.told} == {
            f"http://sidecar.example/runs/t/{run_id}/v1" for run_id in (0, 1)
        }
        assert (await loop.commit())["experiences"] == 4
        [commit] = loop.explorer.committed
        assert [(e["msg_id"], e["reward"]) for e in commit] == [
            (msg_id, 0.75) for run in runs for msg_id in run["msg_ids"]
        ]
        assert len(loop.explorer.chats) == 4, "no shadow call was made"


async def test_each_request_is_signed(run_loop: RunLoop) -> None:
    endpoint = Endpoint((503, None), calls=0)
    async with webhook_loop(run_loop, endpoint) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        await until(lambda: len(endpoint.told) == 2)
    for headers, body in zip(endpoint.headers, endpoint.bodies, strict=True):
        told = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        digest = hmac.new(b"a key of some length", told, hashlib.sha256).digest()
        assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    assert endpoint.headers[0]["webhook-id"] == endpoint.headers[1]["webhook-id"], "one name for all tries of a run"


async def test_an_endpoint_on_this_machine_is_not_told_unless_that_is_allowed(run_loop: RunLoop) -> None:
    endpoint = Endpoint()
    async with webhook_loop(run_loop, endpoint, {"allow_private": ["agents.internal"]}) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        [run] = await ended(loop, "t", "failed")
        assert "127.0.0.1 has the private address 127.0.0.1" in run["reason"]
        assert "runs.webhook.allow_private" in run["reason"]
    assert endpoint.told == []


def test_a_signature_is_that_of_the_specifications_example() -> None:
    key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signed(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((404, None), "HTTP 404"),
        ((200, {"reward": 2}), "from 0 to 1, found 2"),
        ((200, {"rewards": 1}), "rewards"),
        ((200, {"r" * 100_000: 1}), f"{'r' * 256}: unknown field; known here: reward, "),
        ((200, b"no gzip"), "its answer cannot be used"),
        ((200, {"error": "the tool was away"}), "the tool was away"),
        ((503, None), "1 attempts: HTTP 503"),
    ],
)
async def test_what_the_endpoint_answers_may_end_the_run_without_a_reward(
    run_loop: RunLoop, answer: tuple[int, Any], reason: str
) -> None:
    async with webhook_loop(run_loop, Endpoint(answer)) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        [run] = await ended(loop, "t", "failed")
        assert reason in run["reason"], "and 503 is not tried again once the agent has made a call"


async def test_without_a_reward_the_calculators_give_it(run_loop: RunLoop) -> None:
    async with webhook_loop(run_loop, Endpoint((200, None))) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        [run] = await ended(loop, "t", "scored")
        assert run["breakdown"] == {"constant": 0.5}


async def test_while_the_endpoint_is_away_runs_wait_and_go_on_once_it_is_back(run_loop: RunLoop) -> None:
    """Each run has one attempt, which an absence does not cost."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    endpoint, other = Endpoint(), Endpoint()
    url = f"http://127.0.0.1:{port}/replay"
    async with webhook_loop(run_loop, other, {"url": url, "max_attempts": 1}, repeat_time=6) as loop:
        assert (await loop.status())["webhook"] == {"breaker": "closed", "error": None}
        endpoint.sidecar = loop.url
        await loop.chat("hello", {"x-slipstream-task-id": "t"})

        async def noticed() -> bool:
            return (await loop.status())["webhook"]["breaker"] != "closed"

        await until(noticed)
        status = await loop.status()
        [problem] = [each for each in status["problems"] if each["code"] == "live.webhook_away"]
        assert "ConnectError" in problem["found"]
        assert "ConnectError" in status["webhook"]["error"]
        assert status["failed_runs"] == []
        metrics = (await loop.client.get("/metrics")).text
        assert 'slipstream_problems{code="live.webhook_away"} 1.0' in metrics
        async with serving(endpoint.app(), port):
            await ended(loop, "t", *["scored"] * 6)
        assert (await loop.status())["webhook"] == {"breaker": "closed", "error": None}


async def test_what_fails_while_the_breaker_is_open_costs_no_attempt(run_loop: RunLoop) -> None:
    """The five that open it are each run's first try, and the sixth finds out that the endpoint is not back."""
    endpoint = Endpoint(*[(503, None)] * 6, *[(202, None)] * 5, calls=0)
    async with webhook_loop(run_loop, endpoint, {"max_attempts": 2}, repeat_time=5) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})

        async def waits() -> bool:
            open_breaker = {"breaker": "open", "error": "HTTP 503"}
            return len(endpoint.told) == 6 and (await loop.status())["webhook"] == open_breaker

        await until(waits)
        await ended(loop, "t", *["open"] * 5)
        assert len(endpoint.told) == 6 + 5


async def test_an_agent_that_was_accepted_ends_its_run_itself(run_loop: RunLoop) -> None:
    endpoint = Endpoint((202, None))
    async with webhook_loop(run_loop, endpoint) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        await until(lambda: endpoint.told and not endpoint.at_once)
        assert (await replay(loop))["runs"][0]["state"] == "open"
        assert (await loop.client.post("/runs/t/0/finish", json={"reward": 1})).json()["state"] == "scored"


async def test_an_endpoint_that_does_not_answer_in_time_fails_the_run(run_loop: RunLoop) -> None:
    endpoint = Endpoint()
    endpoint.hold.clear()
    async with webhook_loop(run_loop, endpoint, {"timeout": "200ms"}) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        [run] = await ended(loop, "t", "failed")
        assert "no answer within 0.2 s (runs.webhook.timeout)" in run["reason"]
        endpoint.hold.set()


async def test_so_many_runs_are_open_at_a_time(run_loop: RunLoop) -> None:
    endpoint = Endpoint()
    async with webhook_loop(run_loop, endpoint, repeat_time=8, concurrency=3) as loop:
        endpoint.hold.clear()
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        await until(lambda: len(endpoint.told) == 3)
        endpoint.hold.set()
        await ended(loop, "t", *["scored"] * 8)
        assert endpoint.most_at_once == 3


async def test_what_the_explorer_lost_is_run_again(run_loop: RunLoop) -> None:
    async with webhook_loop(run_loop, Endpoint(), repeat_time=2) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        await until(lambda: loop.ready(4))
        loop.explorer.recorded.clear()  # it restarted with an empty history
        assert await loop.commit() == {"commit": 1, "groups": 0, "experiences": 0, "run_again": 1, "lost": 0}
        await until(lambda: loop.ready(4))
        assert (await loop.commit())["experiences"] == 4
        group = await replay(loop)
        assert (group["group_id"], group["state"]) == ("t.replay~1", "delivered")
        assert [run["run_id"] for run in group["runs"]] == [2, 3], "an address is never given to another run"


async def test_what_the_explorer_lost_comes_to_nothing_once_no_endpoint_would_run_it_again(run_loop: RunLoop) -> None:
    explorer = ScriptedExplorer()
    async with webhook_loop(run_loop, Endpoint(), explorer=explorer, commit={"on_shutdown": False}) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        await until(lambda: loop.ready(2))
    explorer.recorded.clear()
    async with run_loop(explorer) as loop:
        assert (await loop.commit())["run_again"] == 0
        assert (await replay(loop))["state"] == "dropped"
        await open_runs(loop)


async def test_a_first_call_that_outlives_its_try_is_not_one_of_the_next(run_loop: RunLoop) -> None:
    """The endpoint fails while its agent waits for an answer: told again, there would be two agents in one run."""
    explorer = ScriptedExplorer()
    explorer.hold.clear()
    endpoint = Endpoint((503, None), calls=0)
    endpoint.hold.clear()
    async with webhook_loop(run_loop, endpoint, explorer=explorer) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        await until(lambda: endpoint.told)
        call = asyncio.create_task(
            loop.client.post("/runs/t/0/v1/chat/completions", json={"messages": [{"role": "user"}]})
        )
        await until(lambda: explorer.chats)
        endpoint.hold.set()
        await ended(loop, "t", "failed")
        explorer.hold.set()
        assert (await call).status_code == 410
        assert len(endpoint.told) == 1


def test_the_mode_needs_its_endpoint_and_a_secret() -> None:
    for webhook in ({}, {"url": "http://127.0.0.1:9"}, {"secret": "s"}):
        with pytest.raises(ValidationError, match=r"webhook.url and webhook.secret"):
            Settings.model_validate({"runs": {"mode": "webhook", "webhook": webhook}})
    for secret in ("whsec_no base64", "whsec_"):
        with pytest.raises(ValidationError, match="whsec_ and base64 behind it"):
            Settings.model_validate({"runs": {"webhook": {"secret": secret}}})
