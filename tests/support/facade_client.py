"""What a client of the facade does, in a line each."""

from __future__ import annotations

from typing import Any

from loops import Loop


async def ask(loop: Loop, **fields: Any) -> str:
    """A chat through the facade; returns the id of its answer."""
    body = {"model": "policy", "messages": [{"role": "user", "content": "hello"}], **fields}
    response = await loop.client.post("/explorer/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    msg_id: str = response.json()["id"]
    return msg_id


async def reward(loop: Loop, *msg_ids: str, reward: float = 1.0, **fields: Any) -> dict[str, Any]:
    """A feedback; returns what was said to it."""
    response = await loop.client.post("/explorer/feedback", json={"msg_ids": msg_ids, "reward": reward, **fields})
    assert response.status_code == 200, response.text
    said: dict[str, Any] = response.json()
    assert said["status"] == "success"
    return said


async def run(loop: Loop, task_id: str | None = "t", **fields: Any) -> str:
    """A chat and its reward: one run of a group."""
    msg_id = await ask(loop)
    assert (await reward(loop, msg_id, task_id=task_id, **fields))["accepted"] == 1
    return msg_id


async def commit(loop: Loop) -> dict[str, Any]:
    response = await loop.client.post(
        "/explorer/commit", json={"task_id": None, "run_id": None, "time_threshold": None}
    )
    assert response.status_code == 200, response.text
    counts: dict[str, Any] = response.json()
    return counts


async def seen(loop: Loop) -> dict[str, Any]:
    """The facade's part of the status."""
    part: dict[str, Any] = (await loop.status())["facade"]
    return part


def trained(loop: Loop) -> list[list[tuple[str | None, int]]]:
    """What each commit took: task and run of each experience."""
    return [sorted((e["task_id"], e["run_id"]) for e in commit) for commit in loop.explorer.committed]
