"""Evaluations through a running sidecar: a file of cases, and an Explorer that knows a part of the answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from loops import Loop
from scripted import ScriptedExplorer, completion
from serving import until

EXACT: dict[str, Any] = {"calculators": ["exact_match"]}


def write_cases(path: Path, count: int, **fields: Any) -> Path:
    """Write cases whose right answer is the one that the scripted production gives; returns the path."""
    lines = [
        {"id": f"c{number}", "prompt": f"question {number}", "reference": f"echo: question {number}", **fields}
        for number in range(count)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def suite(path: Path, **fields: Any) -> dict[str, Any]:
    """The section `evaluation` with one suite of this file."""
    return {"suites": [{"name": "fixed", "cases": str(path), **fields}]}


class Knowing(ScriptedExplorer):
    """An Explorer that answers right to these questions, by their numbers, and wrong to all others.

    Attributes:
        knows: the numbers of the questions.
    """

    def __init__(self, *knows: int) -> None:
        super().__init__()
        self.knows = set(knows)

    def reply(self, msg_id: str, body: dict[str, Any]) -> dict[str, Any]:
        question = str(body["messages"][-1]["content"])
        known = question.rpartition(" ")[2] in map(str, self.knows)
        return completion(msg_id, f"echo: {question}" if known else "no idea")


async def serves(loop: Loop, version: int) -> None:
    """Have the Explorer serve a version, and wait until the sidecar knows it."""
    loop.explorer.version = version

    async def known() -> bool:
        return (await loop.client.get(f"/versions/{version}")).status_code == 200

    await until(known)


async def asked(loop: Loop, **body: Any) -> dict[str, Any]:
    """Ask for an evaluation."""
    response = await loop.client.post("/evaluations", json=body)
    assert response.status_code == 201, response.text
    found: dict[str, Any] = response.json()
    return found


async def shown(loop: Loop, number: int) -> dict[str, Any]:
    """The evaluation as it is now."""
    response = await loop.client.get(f"/evaluations/{number}")
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def ended(loop: Loop, number: int) -> dict[str, Any]:
    """Wait until an evaluation has ended."""

    async def over() -> dict[str, Any] | None:
        found = await shown(loop, number)
        return found if found["ended_at"] is not None else None

    found: dict[str, Any] = await until(over, 20)
    return found


async def evaluated(loop: Loop, version: int, **body: Any) -> dict[str, Any]:
    """Have the Explorer serve a version, and evaluate it."""
    await serves(loop, version)
    return await ended(loop, (await asked(loop, version=version, **body))["id"])


async def verdict(loop: Loop, version: int) -> dict[str, Any]:
    """The verdict for a version."""
    found: dict[str, Any] = (await loop.client.get(f"/versions/{version}")).json()["verdict"]
    return found
