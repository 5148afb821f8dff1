"""The webhook mode: an endpoint runs the agents of selected tasks again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from loops import RunLoop
from pydantic import ValidationError
from replay_endpoint import Endpoint, ended, webhook_loop
from replaying import open_runs, replay
from scripted import ScriptedExplorer
from serving import until
from stores import ON_BOTH_STORES

from slipstream.settings.sidecar import Settings


@ON_BOTH_STORES
async def test_a_selected_task_is_run_again_by_its_endpoint(run_loop: RunLoop) -> None:
    endpoint = Endpoint()
    async with webhook_loop(run_loop, endpoint, repeat_time=2) as loop:
        await loop.chat("Where is my parcel?", {"x-slipstream-task-id": "t", "x-slipstream-mark": "parcel",
                                                "x-slipstream-metadata": '{"reference": "42"}'})  # fmt: skip
        runs = await ended(loop, "t", "scored", "scored")
        assert sorted(told["run_id"] for told in endpoint.told) == [0, 1]
        assert {**endpoint.told[0], "run_id": 0, "base_url": ""} == {
            "task_id": "t", "group_id": "t.replay", "run_id": 0, "base_url": "", "input": "Where is my parcel?",
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


async def test_an_endpoint_on_this_machine_is_not_told_unless_that_is_allowed(run_loop: RunLoop) -> None:
    endpoint = Endpoint()
    async with webhook_loop(run_loop, endpoint, {"allow_private": ["agents.internal"]}) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        [run] = await ended(loop, "t", "failed")
        assert "127.0.0.1 has the private address 127.0.0.1" in run["reason"]
        assert "runs.webhook.allow_private" in run["reason"]
    assert endpoint.told == []


@pytest.mark.sampled(1)
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


async def test_an_agent_that_was_accepted_ends_its_run_itself(run_loop: RunLoop) -> None:
    endpoint = Endpoint((202, None))
    async with webhook_loop(run_loop, endpoint) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        await until(lambda: endpoint.told and not endpoint.at_once)
        assert (await replay(loop))["runs"][0]["state"] == "open"
        assert (await loop.client.post("/runs/t/0/finish", json={"reward": 1})).json()["state"] == "scored"


@pytest.mark.slow
async def test_an_endpoint_that_does_not_answer_in_time_fails_the_run(run_loop: RunLoop) -> None:
    endpoint = Endpoint()
    endpoint.hold.clear()
    async with webhook_loop(run_loop, endpoint, {"timeout": "200ms"}) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        [run] = await ended(loop, "t", "failed")
        assert "no answer within 0.2 s (runs.webhook.timeout)" in run["reason"]
        endpoint.hold.set()


@pytest.mark.slow
async def test_so_many_runs_are_open_at_a_time(run_loop: RunLoop) -> None:
    endpoint = Endpoint()
    async with webhook_loop(run_loop, endpoint, repeat_time=8, concurrency=3) as loop:
        endpoint.hold.clear()
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        await until(lambda: len(endpoint.told) == 3)
        endpoint.hold.set()
        await ended(loop, "t", *["scored"] * 8)
        assert endpoint.most_at_once == 3


@pytest.mark.slow
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


@pytest.mark.slow
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
