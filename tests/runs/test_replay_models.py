"""Lists of models for Anthropic's own client, of a run and of the facade."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import anthropic
import pytest
from loops import Loop, RunLoop
from replaying import finish, open_runs


def client_at(loop: Loop, base_path: str) -> anthropic.AsyncAnthropic:
    """Anthropic's client, which adds `/v1` to its base URL itself."""
    base_url = loop.url + base_path.removesuffix("/v1")
    return anthropic.AsyncAnthropic(base_url=base_url, api_key="production's key", max_retries=0)


async def test_the_sdk_lists_the_models_of_a_run_and_of_the_facade(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        for base_path in (run["base_url"], "/explorer/v1"):
            async with client_at(loop, base_path) as client:
                page = await client.models.list()
                assert (page.has_more, page.first_id, page.last_id) == (False, "slipstream-policy", "slipstream-policy")
                [model] = [model async for model in client.models.list(limit=1)]
                assert (model.type, model.id, model.display_name) == ("model", page.first_id, page.first_id)
                assert model.created_at == datetime.fromtimestamp(0, UTC)


async def test_what_keeps_the_list_from_the_sdk_is_an_error_in_its_form(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        async with client_at(loop, run["base_url"]) as client:
            loop.explorer.faults["/v1/models"] = [500]
            with pytest.raises(anthropic.InternalServerError) as failed:
                await client.models.list()
            await finish(loop, reward=1.0)
            with pytest.raises(anthropic.APIStatusError) as closed:
                await client.models.list()
        for error, status, kind in ((failed, 500, "api_error"), (closed, 410, "invalid_request_error")):
            body: Any = error.value.body
            assert (error.value.status_code, body["type"], body["error"]["type"]) == (status, "error", kind)


async def test_an_explorer_that_is_away_is_told_with_the_time_to_ask_again(run_loop: RunLoop) -> None:
    async with run_loop(explorer={"base_url": "http://127.0.0.1:9"}) as loop, client_at(loop, "/explorer/v1") as client:
        with pytest.raises(anthropic.APIStatusError) as away:
            await client.models.list()
        body: Any = away.value.body
        assert (away.value.status_code, body["error"]["type"]) == (503, "overloaded_error")
        assert int(away.value.response.headers["retry-after"]) > 0
