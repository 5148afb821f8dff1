"""Shadow calls to an Explorer that answers rubbish, slowly, or always wrongly for some prompts."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from loops import Loop, RunLoop
from scripted import ScriptedExplorer, completion
from serving import until
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"


class OddExplorer(ScriptedExplorer):
    """Answers a chat whose messages hold the word `odd` with what it was given; the others as ever."""

    def __init__(self, odd: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        super().__init__()
        self._odd = odd
        self._status = status
        self._headers = headers

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        if "odd" not in str(body["messages"]):
            return await super()._chat(request)
        self.chats.append(body)
        if callable(self._odd):
            return StreamingResponse(self._odd())
        return Response(self._odd, self._status, headers=self._headers, media_type="application/json")


async def _failure(loop: Loop) -> str:
    async def failed() -> Any:
        return (await loop.status())["failed_runs"]

    reason: str = (await until(failed))[0]["reason"]
    return reason


def _completion(**fields: Any) -> bytes:
    return json.dumps({**completion("odd-1", "an answer"), **fields}).encode()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (b"", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "no id"),
        (_completion(id="\ud800"), "no id"),
        (_completion(id="x" * 300), "no id"),
        (_completion(choices={"a": 1}), "one choice"),
        (_completion(choices=[{"message": None}]), "no message"),
        (b" " * (17 * 1024**2), "longer"),
    ],
    ids=["empty", "deep", "list", "no-id", "odd-id", "long-id", "choices", "message", "long"],
)
async def test_a_rubbish_answer_fails_its_run_and_no_other(run_loop: RunLoop, odd: bytes, reason: str) -> None:
    async with run_loop(OddExplorer(odd), runs={"max_attempts": 1}) as loop:
        await loop.chat("odd")
        assert reason in await _failure(loop)
        await loop.chat("another")
        await until(lambda: loop.ready(1))


@pytest.mark.slow
async def test_an_answer_in_drips_ends_with_the_runs_timeout(run_loop: RunLoop) -> None:
    async def drips() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.05)

    async with run_loop(OddExplorer(drips), runs={"max_attempts": 1, "timeout": "500ms"}) as loop:
        await loop.chat("odd")
        assert "within 0.5 s" in await _failure(loop)


async def test_half_a_surrogate_pair_reaches_the_policy_as_it_came(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        body = b'{"model": "prod", "messages": [{"role": "user", "content": ["cut \\ud83d here"]}]}'
        response = await loop.client.post("/v1/chat/completions", content=body)
        assert response.status_code == 200
        await until(lambda: loop.ready(1))
        assert loop.explorer.chats[0]["messages"][0]["content"] == ["cut \ud83d here"]


@pytest.mark.slow
async def test_models_without_a_name_is_asked_again(run_loop: RunLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [JSONResponse({}, 404), JSONResponse({"data": {"a": 1}}), JSONResponse({"data": 5})]

    async def models(self: ScriptedExplorer, request: Request) -> Response:
        return answers.pop(0) if answers else JSONResponse({"data": [{"id": "the-policy"}]})

    monkeypatch.setattr(ScriptedExplorer, "_models", models)
    async with run_loop(runs={"max_attempts": 4}) as loop:
        await loop.chat("one")
        await until(lambda: loop.ready(1), 30)
        assert loop.explorer.chats[0]["model"] == "the-policy"


@pytest.mark.slow
async def test_an_explorer_that_serves_another_model_now_is_asked_for_its_name(
    run_loop: RunLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = ["first"]
    chat = ScriptedExplorer._chat

    async def models(self: ScriptedExplorer, request: Request) -> Response:
        return JSONResponse({"data": [{"id": served[-1]}]})

    async def chat_with_served(self: ScriptedExplorer, request: Request) -> Response:
        if (await request.json())["model"] != served[-1]:
            return JSONResponse({"error": {"message": "The model does not exist."}}, 404)
        return await chat(self, request)

    monkeypatch.setattr(ScriptedExplorer, "_models", models)
    monkeypatch.setattr(ScriptedExplorer, "_chat", chat_with_served)
    async with run_loop() as loop:
        await loop.chat("one")
        await until(lambda: loop.ready(1))
        served.append("second")
        await loop.chat("two")
        await until(lambda: loop.ready(2))


@pytest.mark.slow
async def test_prompts_that_the_explorer_always_fails_on_do_not_keep_the_others_from_it(run_loop: RunLoop) -> None:
    async with run_loop(OddExplorer(b"{}", 500), runs={"concurrency": 4}) as loop:
        for number in range(8):
            await loop.chat(f"odd {number}")

        async def breaker_opened() -> bool:
            return (await loop.status())["explorer"]["breaker"] != "closed"

        await until(breaker_opened)
        await loop.chat("as ever")
        await until(lambda: loop.ready(1), 30)


async def test_a_wait_that_the_explorer_asks_for_has_a_bound(run_loop: RunLoop, tmp_path: Path) -> None:
    async with run_loop(OddExplorer(b"{}", 429, {"retry-after": "1e300"})) as loop:
        await loop.chat("odd")

        async def postponed() -> bool:
            return "slipstream_run_retries_total 1.0" in (await loop.client.get("/metrics")).text

        await until(postponed)
        with sqlite3.connect(tmp_path / "slipstream.db") as store:
            query = "SELECT due_at - updated_at FROM runs WHERE state = 'pending'"
            [wait] = await until(lambda: store.execute(query).fetchone())
        store.close()
        assert 30 < wait < 61


@pytest.mark.slow
async def test_what_is_stored_of_the_policy_is_redacted_and_its_errors_stay_out_of_the_log(
    run_loop: RunLoop, capfd: pytest.CaptureFixture[str]
) -> None:
    told = f"cannot read the prompt 'odd', key {SECRET}"
    rewards = {"calculators": [{"python": "test_odd_explorer:raises"}]}
    async with run_loop(OddExplorer(told.encode(), 400), rewards=rewards) as loop:
        await loop.chat("odd", {"x-slipstream-task-id": "refused"})
        assert "cannot read the prompt 'odd', key [redacted:api_key]" in await _failure(loop)
        loop.explorer.answer = f"the key is {SECRET}, the rest is silence"
        await loop.chat("another", {"x-slipstream-task-id": "scored"})

        async def scored() -> Any:
            task = await loop.task("scored")
            return task and task["groups"] and task["groups"][0]["runs"][0]["reason"]

        assert "the key is [redacted:api_key], the rest is silence" in await until(scored)
    logged = "".join(capfd.readouterr())
    assert "run_failed" in logged
    assert "scoring_failed" in logged
    assert "cannot read" not in logged
    assert "silence" not in logged


def raises(run: Any) -> float:
    """A reward function that trips over the answer."""
    return float(run.text)


@pytest.mark.slow
async def test_counters_that_are_none_postpone_the_commit(run_loop: RunLoop) -> None:
    class Uncounted(ScriptedExplorer):
        counter: str | None = None

        async def _metrics(self, request: Request) -> Response:
            counted = await super()._metrics(request)
            if self.counter is None:
                return counted
            text = bytes(counted.body).replace(b'"explore_step_num":0', b'"explore_step_num":' + self.counter.encode())
            return Response(text, media_type="application/json")

    explorer = Uncounted()
    async with run_loop(explorer) as loop:
        await loop.chat("one")
        await until(lambda: loop.ready(1))

        for explorer.counter in ("1e999", "1" * 30, "null", '"many"'):
            response = await loop.client.post("/commit")
            refused = response.status_code, response.json()["error"]["code"]
            assert refused == (503, "explorer_unavailable"), explorer.counter
        explorer.counter = None
        assert (await loop.commit())["experiences"] == 1
