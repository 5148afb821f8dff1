"""With an Explorer that is down, hung or answers rubbish, production goes on as if there were none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from broken import WAYS, broken_explorer
from scripted import production_app
from serving import serving, sidecar, until

from slipstream.settings.sidecar import Settings

CALLS = 100


@pytest.mark.sampled(1)
@pytest.mark.parametrize("way", [pytest.param(way, marks=pytest.mark.slow) if way == "hung" else way for way in WAYS])
async def test_every_answer_is_productions_own(tmp_path: Path, way: str) -> None:
    sent: dict[str, bytes] = {}
    async with serving(production_app(sent)) as production_url, broken_explorer(way) as explorer_url:
        settings = Settings.model_validate(
            {
                "production": {"base_url": f"{production_url}/v1"},
                "explorer": {"base_url": explorer_url, "poll_interval": "50ms"},
                "store": {"url": f"sqlite+aiosqlite:///{tmp_path}/slipstream.db"},
                "selection": {"sampling": {"rate": 1.0}},
                "runs": {"timeout": "500ms", "queue": 50},
                "rewards": {"calculators": [{"constant": {"value": 1}}]},
                "commit": {"interval": "100ms"},
            }
        )
        async with sidecar(settings) as url, httpx.AsyncClient(base_url=url, timeout=30) as client:

            async def ask(number: int) -> None:
                messages = [{"role": "user", "content": f"question {number}"}]
                response = await client.post("/v1/chat/completions", json={"model": "prod", "messages": messages})
                assert response.status_code == 200
                assert response.content == sent[f"question {number}"]

            await asyncio.gather(*(ask(number) for number in range(CALLS)))

            async def noticed() -> bool:
                status = (await client.get("/status")).json()
                return status["explorer"]["up"] is False and sum(status["tasks"].values()) == CALLS

            await until(noticed, 40)
            assert (await client.get("/readyz")).status_code == 200, "production flows, so the sidecar is ready"
            response = await client.post("/feedback", json={"msg_id": "prod-1", "thumbs": "up"})
            assert response.status_code == 202, "feedback is taken as ever"
