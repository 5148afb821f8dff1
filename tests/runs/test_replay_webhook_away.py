"""The endpoint of replays is away, or what it was to be told got lost: runs wait, and are told of once."""

from __future__ import annotations

import pytest
from loops import RunLoop
from lost_commit import lose_a_commit
from ports import free_port
from replay_endpoint import Endpoint, ended, webhook_loop
from serving import serving, until

from slipstream.store import webhook


@pytest.mark.slow
async def test_while_the_endpoint_is_away_runs_wait_and_go_on_once_it_is_back(run_loop: RunLoop) -> None:
    """Each run has one attempt, which an absence does not cost."""
    port = free_port()
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


@pytest.mark.slow
async def test_what_fails_while_the_breaker_is_open_costs_no_attempt(run_loop: RunLoop) -> None:
    """The five that open it are each run's first try, and the sixth finds out that the endpoint is not back."""
    endpoint = Endpoint(*[(503, None)] * 99, calls=0)
    async with webhook_loop(run_loop, endpoint, {"max_attempts": 2}, repeat_time=5) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})

        async def waits() -> bool:
            open_breaker = {"breaker": "open", "error": "HTTP 503"}
            return len(endpoint.told) >= 6 and (await loop.status())["webhook"] == open_breaker

        await until(waits)
        endpoint.answers, refused = [(202, None)] * 5, len(endpoint.told)
        await ended(loop, "t", *["open"] * 5)
        assert len(endpoint.told) == refused + 5


@pytest.mark.slow
async def test_runs_that_were_claimed_and_nobody_heard_of_it_are_told_of(
    run_loop: RunLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = lose_a_commit(monkeypatch, webhook)
    endpoint = Endpoint()
    async with webhook_loop(run_loop, endpoint, repeat_time=2) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        await ended(loop, "t", "scored", "scored")
    assert lost
    assert len(endpoint.told) == 2, "each once"
