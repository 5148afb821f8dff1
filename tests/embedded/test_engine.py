from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest
from serving import serving, until

from slipstream.embedded.config import EngineConfig
from slipstream.embedded.device import limits
from slipstream.embedded.engines import transformers_engine as engine_module
from slipstream.embedded.engines.batch import Batch
from slipstream.embedded.engines.engine import Sampling
from slipstream.embedded.engines.loading import load_engine
from slipstream.embedded.serving import create_app


def allowed(monkeypatch: pytest.MonkeyPatch, **fewer: int) -> None:
    monkeypatch.setattr(engine_module, "limits", lambda device: replace(limits(device), **fewer))


async def test_prompts_are_read_a_bounded_number_of_tokens_at_a_time(
    explorer_config: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed(monkeypatch, prompt_tokens=100)
    read: list[int] = []
    join = Batch.join

    def measured(batch: Batch, prompts: list[list[int]]) -> Any:
        read.append(sum(map(len, set(map(tuple, prompts)))))
        return join(batch, prompts)

    monkeypatch.setattr(Batch, "join", measured)
    engine, _ = load_engine(explorer_config)

    async def tokens(prompt: list[int]) -> int:
        return len([step async for step in engine.generate(prompt, Sampling(max_tokens=3, seed=1))])

    try:
        with engine._changed:  # the model's thread finds all of them at once
            asking = [asyncio.create_task(tokens([20 + index] * (60 if index == 5 else 5))) for index in range(10)]
            await asyncio.sleep(0)
        answered = await asyncio.wait_for(asyncio.gather(*asking), 60)
    finally:
        await asyncio.to_thread(engine.stop)

    assert len(answered) == 10
    assert all(answered)
    assert max(read) <= 100


async def test_one_answer_too_many_is_refused_and_a_place_left_is_free_again(
    explorer_config: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed(monkeypatch, rows=1)
    monkeypatch.setattr(engine_module, "MAX_WAITING", 2)
    app = create_app(explorer_config)
    engine = app.state.explorer.engine
    body = {"model": explorer_config.model.model_path, "messages": [{"role": "user", "content": "Hello"}]}
    async with serving(app) as url, httpx.AsyncClient(base_url=url, timeout=60) as http:

        def ask(**fields: Any) -> asyncio.Task[httpx.Response]:
            return asyncio.create_task(http.post("/v1/chat/completions", json={**body, "max_tokens": 3000, **fields}))

        asked = [ask()]
        await until(lambda: engine._active)
        asked += [ask(), ask()]
        await until(lambda: len(engine._waiting) == 2)
        refused = await ask()
        streamed = await ask(stream=True)
        asked.pop().cancel()
        await until(lambda: len(engine._waiting) == 1)
        too_many = await ask(n=2)
        taken = ask(max_tokens=1)
        await until(lambda: len(engine._waiting) == 2)
        for each in asked:
            each.cancel()
        answered = await taken

    assert (refused.status_code, streamed.status_code, too_many.status_code) == (429, 429, 429)
    assert refused.json()["error"]["code"] == "too_many_requests"
    assert "2 answers wait already" in refused.json()["error"]["message"]
    assert refused.headers["retry-after"] == "1"
    assert answered.status_code == 200


@pytest.mark.slow
async def test_a_request_that_would_not_fit_into_the_cache_waits_for_its_room(
    explorer_config: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room is reserved for the longest that an answer may become; one alone is always taken."""
    engine, _ = load_engine(explorer_config)
    engine._limits = replace(engine._limits, cache_bytes=2 * 100 * engine._batch.token_bytes)
    rows: list[int] = []
    step = Batch.step

    def counted(batch: Batch, tokens: list[int]) -> Any:
        rows.append(len(tokens))
        return step(batch, tokens)

    monkeypatch.setattr(Batch, "step", counted)

    async def tokens(most: int) -> int:
        return len([step async for step in engine.generate([5] * 10, Sampling(max_tokens=most, seed=1))])

    try:
        answered = await asyncio.wait_for(asyncio.gather(*(tokens(most) for most in (90, 90, 90, 300))), 60)
    finally:
        await asyncio.to_thread(engine.stop)

    assert all(answered)
    assert max(rows) == 2
