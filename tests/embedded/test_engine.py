from __future__ import annotations

import asyncio
from typing import Any

import pytest

from slipstream.embedded import engine as engine_module
from slipstream.embedded.batch import Batch
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.engine import load_engine
from slipstream.embedded.sampling import Sampling


async def test_prompts_are_read_a_bounded_number_of_tokens_at_a_time_padding_included(
    explorer_config: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long prompt beside many short ones would pad each of them to its own length."""
    monkeypatch.setattr(engine_module, "_PROMPT_TOKENS", 100)
    read: list[int] = []
    join = Batch.join

    def measured(batch: Batch, prompts: list[list[int]]) -> Any:
        read.append(len(set(map(tuple, prompts))) * max(map(len, prompts)))
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
