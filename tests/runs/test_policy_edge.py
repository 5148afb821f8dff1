"""What stands between the policy and those who ask it: one stable name, and no secret on the way to the Explorer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from careful_hook import REDACT
from loops import Loop, RunLoop
from on_disk import holds
from openai import AsyncOpenAI
from replaying import BODY, ask, finish, open_runs, sdk
from serving import until

NAME = "slipstream-policy"
EXPLORERS = "scripted"
"""What the scripted Explorer says in its answers."""
SECRET = "sk-proj-Ab_cd-1234567890"


def asked(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def facade(loop: Loop) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{loop.url}/explorer/v1", api_key="none")


async def test_a_replayed_agent_knows_the_policy_by_one_name(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        async with sdk(loop, run) as client:
            assert [model.id for model in (await client.models.list()).data] == [NAME]
            answer = await client.chat.completions.create(model="gpt-4o", messages=BODY["messages"])
            assert answer.model == NAME
            stream = await client.chat.completions.create(model=NAME, messages=BODY["messages"], stream=True)
            assert {chunk.model async for chunk in stream} == {NAME}
        assert {chat["model"] for chat in loop.explorer.chats} == {"/models/policy"}


async def test_a_client_of_the_facade_may_ask_by_either_name(run_loop: RunLoop) -> None:
    async with run_loop() as loop, facade(loop) as client:
        assert [model.id for model in (await client.models.list()).data] == [NAME]
        for name, said in ((NAME, NAME), ("/models/policy", EXPLORERS)):
            answer = await client.chat.completions.create(model=name, messages=BODY["messages"])
            assert answer.model == said
            stream = await client.chat.completions.create(model=name, messages=BODY["messages"], stream=True)
            assert {chunk.model async for chunk in stream} == {said}
        assert {chat["model"] for chat in loop.explorer.chats} == {"/models/policy"}


async def test_the_name_stays_when_the_explorer_serves_another_model(run_loop: RunLoop) -> None:
    async with run_loop() as loop, facade(loop) as client:
        await client.chat.completions.create(model=NAME, messages=BODY["messages"])
        loop.explorer.model = "/models/policy-2"
        loop.explorer.faults["/v1/chat/completions"] = [404]
        answer = await client.chat.completions.create(model=NAME, messages=BODY["messages"])
        assert answer.model == NAME
        assert loop.explorer.chats[-1]["model"] == "/models/policy-2"
        assert [model.id for model in (await client.models.list()).data] == [NAME]


async def test_the_name_is_configured(run_loop: RunLoop) -> None:
    async with run_loop(explorer={"served_model_name": "helpdesk"}) as loop, facade(loop) as client:
        assert [model.id for model in (await client.models.list()).data] == ["helpdesk"]
        assert (await client.chat.completions.create(model="helpdesk", messages=BODY["messages"])).model == "helpdesk"


@pytest.mark.parametrize("redact", [True, False])
async def test_what_the_policy_is_asked_is_redacted_unless_said_otherwise(
    run_loop: RunLoop, tmp_path: Path, redact: bool
) -> None:
    async with run_loop(explorer={"redact": redact}) as loop:
        [run] = (await open_runs(loop))["runs"]
        async with sdk(loop, run) as client, facade(loop) as other:
            await client.chat.completions.create(model="m", messages=asked(f"my key is {SECRET}"))
            for name in (NAME, "/models/policy"):
                await other.chat.completions.create(model=name, messages=asked(f"my key is {SECRET}"))
        await finish(loop, reward=1)
        wanted = "my key is [redacted:api_key]" if redact else f"my key is {SECRET}"
        assert [chat["messages"][0]["content"] for chat in loop.explorer.chats] == [wanted] * 3
        assert not holds(tmp_path, SECRET), "what is stored is redacted either way"


async def test_what_a_hook_fails_on_does_not_reach_the_explorer(run_loop: RunLoop) -> None:
    async with run_loop(capture=REDACT) as loop:
        [run] = (await open_runs(loop))["runs"]
        for url in (run["base_url"], "/explorer/v1"):
            response = await loop.client.post(
                f"{url}/chat/completions", json={"model": NAME, "messages": asked("unknown")}
            )
            assert (response.status_code, response.json()["error"]["code"]) == (422, "redaction_failed")
        assert loop.explorer.chats == []


@pytest.mark.slow
async def test_ids_with_a_secret_are_found_under_what_was_given_and_not_stored(
    run_loop: RunLoop, tmp_path: Path
) -> None:
    task, session = f"order {SECRET}", f"chat {SECRET}"
    headers = {"x-slipstream-task-id": task, "x-slipstream-session-id": session}
    async with run_loop() as loop:
        await loop.chat("hello", headers)
        found = await until(lambda: loop.task(task))
        assert found["task_id"].startswith("redacted-")
        assert (await loop.client.get(f"/tasks/{found['task_id']}")).json()["task_id"] == found["task_id"]
        for named in ({"task_id": task}, {"session_id": session}):
            receipt = await loop.client.post("/feedback", json={**named, "thumbs": "up"})
            [said] = (await loop.client.get(f"/feedback/{receipt.json()['id']}")).json()["targets"]
            assert said["state"] in ("matched", "late"), said
        mark = await loop.client.post("/marks", json={"task_id": task, "labels": ["gold"]})
        assert mark.json()["state"] == "applied"
        opened = await loop.client.post(f"/runs/replay {SECRET}", json={"runs": 1})
        [run] = opened.json()["runs"]
        async with sdk(loop, run) as client:
            await ask(client)
        ended = await loop.client.post(f"/runs/replay {SECRET}/0/finish", json={"reward": 1})
        assert ended.json()["state"] == "scored"
        assert not holds(tmp_path, SECRET)
        assert not holds(tmp_path, json.dumps(SECRET))
        gone = await loop.client.delete("/data", params={"session_id": session})
        assert gone.json()["deleted"]["tasks"] == 1
