"""What somebody who runs an agent again does, in a line each."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import openai
from loops import Loop
from scripted import ScriptedExplorer, completion, tool_call

from slipstream.rewards import Reward
from slipstream.trajectory import Run

CHAT = "/runs/t/0/v1/chat/completions"
BODY: dict[str, Any] = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]}


class CallsTools(ScriptedExplorer):
    """A policy that calls the tool `look_up` where it has not yet."""

    def reply(self, msg_id: str, body: dict[str, Any]) -> dict[str, Any]:
        if body["messages"][-1]["role"] == "user" and body.get("tools"):
            return completion(msg_id, "", [tool_call("look_up", {"q": 1}, f"call-{msg_id}")])
        return super().reply(msg_id, body)


async def open_runs(loop: Loop, task_id: str = "t", runs: int = 1, **fields: Any) -> dict[str, Any]:
    """A group of runs; returns what was said to it."""
    response = await loop.client.post(f"/runs/{quote(task_id, safe='')}", json={"runs": runs, **fields})
    assert response.status_code == 201, response.text
    group: dict[str, Any] = response.json()
    return group


def sdk(loop: Loop, run: dict[str, Any], **options: Any) -> openai.AsyncOpenAI:
    """The SDK of an agent, at the address of its run."""
    return openai.AsyncOpenAI(base_url=loop.url + run["base_url"], api_key="production's key", **options)


async def ask(client: openai.AsyncOpenAI, text: str = "hello", **fields: Any) -> str:
    """A chat of the agent; returns the id of its answer."""
    answer = await client.chat.completions.create(
        model="gpt-4o", messages=[{"role": "user", "content": text}], **fields
    )
    msg_id: str = answer.id
    return msg_id


async def finish(loop: Loop, task_id: str = "t", run_id: int = 0, **fields: Any) -> dict[str, Any]:
    """The end of a run; returns what was said to it."""
    response = await loop.client.post(f"/runs/{quote(task_id, safe='')}/{run_id}/finish", json=fields)
    assert response.status_code == 200, response.text
    ended: dict[str, Any] = response.json()
    return ended


async def replay(loop: Loop, task_id: str = "t") -> dict[str, Any]:
    """The newest group of the task."""
    response = await loop.client.get(f"/runs/{quote(task_id, safe='')}")
    assert response.status_code == 200, response.text
    group: dict[str, Any] = response.json()
    return group


async def posted(loop: Loop, body: dict[str, Any]) -> dict[str, Any]:
    """Feedback; returns what became of it at once."""
    response = await loop.client.post("/feedback", json=body)
    assert response.status_code == 202, response.text
    receipt: dict[str, Any] = (await loop.client.get(f"/feedback/{response.json()['id']}")).json()
    return receipt


def about_replay(run: Run) -> Reward:
    """A calculator that says what it sees of a replay."""
    assert run.kind == "agent_replay"
    parts = {
        "calls": float(len(run.calls)),
        "metadata": float(run.metadata.get("reference") == "42" and run.metadata["tool"] == "of the run"),
        "production": float(run.production is not None),
        "blocked": float(len(run.blocked)),
    }
    return Reward(0.5, parts)
