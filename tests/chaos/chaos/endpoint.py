"""The endpoint of `runs.mode: webhook` as a process: it runs an agent again whenever a sidecar tells it to.

    python -m chaos.endpoint PORT JOURNAL

The environment has WEBHOOK_SECRET, which requests are signed with, AGENT_KEY, which its agents send as that of their
production model, and SIDECAR_KEY where the sidecars ask for one.

JOURNAL gets a line of JSON before each thing that is to be found again whatever is killed: `told` of a run; the run
`asks` and has `got` an answer; it is `finished`, which the sidecar acknowledged; something was `wrong`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from chaos.record import Record, canary
from slipstream_client.webhooks import WebhookError, verify_webhook

_TOLERANCE = 2000.0
"""Seconds that a request may seem old, or ahead: the sidecars' clocks are set by up to half an hour."""
_PATIENCE = 30.0
"""Seconds that the end of a run is posted again."""
_AGAIN = (429, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class Part:
    """What the agent of a run does: a function of the run's name, so that it can be compared with what is stored.

    Attributes:
        accepted: its end is posted; else it is the answer to the webhook.
        ending: what it says at its end, if no call fails. A reward is a tenth: no garbled byte makes another of it.
    """

    calls: int
    accepted: bool
    ending: dict[str, Any]


def part_of(task: str, run: int) -> Part:
    rng = random.Random(f"{task} {run}")
    endings = ({"reward": rng.randint(0, 10) / 10}, {}, {"error": f"it gave up, {canary(task)}"})
    return Part(rng.randint(1, 2), rng.random() < 0.4, rng.choices(endings, (8, 2, 1))[0])


class Endpoint:
    """Runs agents; see the module.

    Args:
        headers: what the agents' requests carry.
    """

    def __init__(self, journal: Path, secret: str, headers: dict[str, str]) -> None:
        told = (line for line in _lines(journal) if line["what"] == "told")
        self._known = {line["id"]: (line["task"], line["run"]) for line in told}
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._secret = secret
        self._client = httpx.AsyncClient(headers=headers, timeout=10)
        self._agents: set[asyncio.Task[None]] = set()

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/replay", self._replay, methods=["POST"])])

    async def _replay(self, request: Request) -> Response:
        try:
            told = verify_webhook(await request.body(), request.headers, self._secret, _TOLERANCE)
        except ClientDisconnect:
            return Response(status_code=499)
        except WebhookError as error:
            self._write("wrong", "?", 0, why=str(error))
            return Response(status_code=401)
        task, run, name = told["task_id"], told["run_id"], request.headers["webhook-id"]
        if task.startswith("agent") and not str(told["input"]).startswith(f"{task} asks"):
            self._write("wrong", task, run, why=f"its input is {told['input']!r}")
        if name in self._known:  # its agent has begun, or was killed
            if self._known[name] != (task, run):
                self._write("wrong", task, run, why=f"its webhook-id is also that of {self._known[name]}")
            return Response(status_code=202)
        self._known[name] = task, run
        self._write("told", task, run, id=name)
        if not part_of(task, run).accepted:
            return JSONResponse(await self._run(task, run, told["base_url"]))
        agent = asyncio.create_task(self._run_and_finish(task, run, told["base_url"]))
        self._agents.add(agent)
        agent.add_done_callback(self._agents.discard)
        return Response(status_code=202)

    async def _run(self, task: str, run: int, base_url: str) -> dict[str, Any]:
        """The agent; returns what it says at its end."""
        part = part_of(task, run)
        for number in range(part.calls):
            self._write("asks", task, run)
            body = {"messages": [{"role": "user", "content": f"{task} once more {number}, {canary(task)}"}]}
            try:
                answer = await self._client.post(f"{base_url}/chat/completions", json={"model": "prod", **body})
                answer.raise_for_status().json()["choices"][0]["message"]["content"]
            except (httpx.HTTPError, ValueError, LookupError, TypeError):
                return {"error": f"a call failed, {canary(task)}"}
            self._write("got", task, run)
        return part.ending

    async def _run_and_finish(self, task: str, run: int, base_url: str) -> None:
        ending = await self._run(task, run, base_url)
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            try:
                answer = await self._client.post(base_url.removesuffix("/v1") + "/finish", json=ending)
            except httpx.TransportError:
                pass
            else:
                if answer.status_code == 200 and "reward" in ending:
                    self._write("finished", task, run, reward=ending["reward"])
                elif answer.status_code not in (200, 404, 409, *_AGAIN):  # it may have been deleted, or given up
                    self._write("wrong", task, run, why=f"its end got {answer.status_code} {answer.text[:200]}")
                if answer.status_code not in _AGAIN:
                    return
            await asyncio.sleep(0.1)

    def _write(self, what: str, task: str, run: int, **more: Any) -> None:
        os.write(self._journal, json.dumps({"what": what, "task": task, "run": run, **more}).encode() + b"\n")


def recall(journal: Path, record: Record) -> None:
    """Add what a journal says to what the outside saw."""
    names: dict[tuple[str, int], str] = {}
    missing = Counter[tuple[str, int]]()
    for line in _lines(journal):
        run = line["task"], line["run"]
        match line["what"]:
            case "wrong":
                record.wrong.append(f"the endpoint of agents, about the run {run}: {line['why']}")
            case "told" if names.setdefault(run, line["id"]) != line["id"]:
                record.wrong.append(f"the run {run} has several webhook-ids")
            case "asks":
                missing[run] += 1
            case "got":
                missing[run] -= 1
            case "finished":
                record.finished[run] = line["reward"]
    record.broken |= {run for run, answers in missing.items() if answers}


def _lines(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_bytes().splitlines()] if journal.exists() else []


def main() -> None:
    headers = {"authorization": f"Bearer {os.environ['AGENT_KEY']}"}
    if key := os.environ.get("SIDECAR_KEY"):
        headers["x-slipstream-key"] = key
    endpoint = Endpoint(Path(sys.argv[2]), os.environ["WEBHOOK_SECRET"], headers)
    uvicorn.run(endpoint.app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")


if __name__ == "__main__":
    main()
