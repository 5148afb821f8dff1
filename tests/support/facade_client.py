"""What a client of the facade does, in a line each."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
from loops import Loop


async def ask(loop: Loop, **fields: Any) -> str:
    """A chat through the facade; returns the id of its answer."""
    body = {"model": "policy", "messages": [{"role": "user", "content": "hello"}], **fields}
    response = await loop.client.post("/explorer/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    msg_id: str = response.json()["id"]
    return msg_id


async def reward(loop: Loop, *msg_ids: str, reward: float = 1.0, **fields: Any) -> dict[str, Any]:
    """A feedback; returns the counts of accepted and repeated ids, and the ids that had no effect."""
    response = await loop.client.post("/explorer/feedback", json={"msg_ids": msg_ids, "reward": reward, **fields})
    assert response.status_code == 200, response.text
    counts, message = _counts(response), response.json().get("message", "")
    for result in ("rejected", "unknown"):
        found = re.search(rf"{result}: (\[.*?\])", message)
        ids: list[str] = json.loads(found[1]) if found else []
        assert counts[result] == len(ids), (counts, message)
        counts[result] = ids
    return counts


async def run(loop: Loop, task_id: str | None = "t", **fields: Any) -> str:
    """A chat and its reward: one run of a group."""
    msg_id = await ask(loop)
    assert (await reward(loop, msg_id, task_id=task_id, **fields))["accepted"] == 1
    return msg_id


async def commit(loop: Loop) -> dict[str, Any]:
    """A commit; returns its counts."""
    response = await loop.client.post(
        "/explorer/commit", json={"task_id": None, "run_id": None, "time_threshold": None}
    )
    assert response.status_code == 200, response.text
    return _counts(response)


def _counts(response: httpx.Response) -> dict[str, Any]:
    """The header with the counts, beside a body that has no field which AgentScope Java does not know."""
    body = response.json()
    assert body["status"] == "success"
    assert set(body) <= {"status", "message"}
    pairs = (entry.split("=") for entry in response.headers["x-slipstream-result"].split(", "))
    return {name: int(count) for name, count in pairs}


async def seen(loop: Loop) -> dict[str, Any]:
    """The facade's part of the status."""
    part: dict[str, Any] = (await loop.status())["facade"]
    return part


def trained(loop: Loop) -> list[list[tuple[str | None, int]]]:
    """What each commit took: task and run of each experience."""
    return [sorted((e["task_id"], e["run_id"]) for e in commit) for commit in loop.explorer.committed]
