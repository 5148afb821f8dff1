"""A real Explorer of what nothing trains: on a lane's directory it loads what is put there, and says its number."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from serving import serving, until
from tiny_model import tiny_llama

from slipstream.embedded import checkpoints
from slipstream.embedded import serving as embedded_serving
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.serving import create_app
from slipstream.versions import keeping, lanes


def test_of_a_model_that_nothing_trains_no_conversation_is_recorded(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(config: EngineConfig) -> None:
        async with serving(create_app(config)) as url, httpx.AsyncClient(base_url=url, timeout=60) as http:
            messages = [{"role": "user", "content": "Hello"}]
            answered = await http.post(
                "/v1/chat/completions", json={"model": str(tiny_model), "messages": messages, "max_tokens": 2}
            )
            assert answered.status_code == 200, answered.text
            assert (await http.get("/metrics")).json()["rollout/total_experience_count"] == 0

    monkeypatch.setattr(embedded_serving, "serve", lambda config: asyncio.run(ask(config)))
    embedded_serving.serve_frozen(tiny_model, 8011)


@pytest.mark.slow
async def test_a_lane_serves_each_version_that_is_put_there_and_records_nothing(
    explorer_config: EngineConfig, tmp_path: Path
) -> None:
    job, keep = tmp_path / "trainer" / "job", tmp_path / "keep"
    for version in (7, 8):
        checkpoints.publish(job, version, tiny_llama(seed=version).save_pretrained)
        keeping.keep(job, keep, version, copy=False)
    checkpoints.publish(job, 9, tiny_llama(seed=9).save_pretrained)
    assert checkpoints.prune(job, keep=1) == [7, 8]

    explorer = explorer_config.explorer.model_copy(update={"record_experiences": False})
    lane_config = explorer_config.model_copy(update={"explorer": explorer})
    lane = lane_config.job_dir
    assert lanes.put(lane, keep / "8", 8, copy=False) == 1

    async with serving(create_app(lane_config)) as url, httpx.AsyncClient(base_url=url, timeout=60) as http:

        async def loaded(step: int) -> bool:
            return (await http.get("/metrics")).json()["rollout/model_0/model_version"] == step

        async def answer() -> str:
            body = {
                "model": lane_config.model.model_path,
                "messages": [{"role": "user", "content": "Hello"}],
                "max_tokens": 12,
                "seed": 1,
            }
            response = await http.post("/v1/chat/completions", json=body)
            assert response.status_code == 200, response.text
            text: str = response.json()["choices"][0]["message"]["content"]
            return text

        assert await loaded(1), "at its start"
        of_8 = await answer()
        assert lanes.put(lane, keep / "7", 7, copy=False) == 2
        await until(lambda: loaded(2))
        assert await answer() != of_8
        assert lanes.put(lane, keep / "8", 8, copy=False) == 3
        await until(lambda: loaded(3))
        assert await answer() == of_8, "the way back is a higher number too"
        assert (await http.get("/metrics")).json()["rollout/total_experience_count"] == 0
