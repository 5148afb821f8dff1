"""An endpoint that runs agents again, as the webhook mode asks it to."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import openai
from loops import Loop, RunLoop
from replaying import ask
from scripted import ScriptedExplorer
from serving import serving, until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

SECRET = "whsec_" + base64.b64encode(b"a key of some length").decode()


class Endpoint:
    """An endpoint that runs its agent again.

    Attributes:
        answers: statuses and bodies (bytes are said to be compressed) of its next answers; then `{"reward": 0.75}`.
        calls: how many the agent makes before it answers.
        told: the requests that came, and `headers` theirs.
        hold: while it is not set, nothing is answered.
    """

    def __init__(self, *answers: tuple[int, Any], calls: int = 2) -> None:
        self.answers = list(answers)
        self.calls = calls
        self.told: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.sidecar = ""
        self.at_once = self.most_at_once = 0
        self.hold = asyncio.Event()
        self.hold.set()

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/replay", self._replay, methods=["POST"])])

    async def _replay(self, request: Request) -> Response:
        self.bodies.append(await request.body())
        self.headers.append(dict(request.headers))
        told = json.loads(self.bodies[-1])
        self.told.append(told)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.hold.wait()
        status, body = self.answers.pop(0) if self.answers else (200, {"reward": 0.75})
        url = self.sidecar + urlsplit(told["base_url"]).path
        async with openai.AsyncOpenAI(base_url=url, api_key="-", max_retries=0) as client:
            for step in range(self.calls):
                await ask(client, f"step {step}")
        self.at_once -= 1
        if isinstance(body, bytes):
            return Response(body, status, {"content-encoding": "gzip"})
        return Response(status_code=status) if body is None else JSONResponse(body, status)


@asynccontextmanager
async def webhook_loop(
    run_loop: RunLoop,
    endpoint: Endpoint,
    webhook: dict[str, Any] | None = None,
    explorer: ScriptedExplorer | None = None,
    commit: dict[str, Any] | None = None,
    **runs: Any,
) -> AsyncIterator[Loop]:
    async with serving(endpoint.app()) as url:
        told = {"url": f"{url}/replay", "secret": SECRET, "base_url": "http://sidecar.example", "allow_private": True}
        told |= webhook or {}
        sections = {
            "runs": {"mode": "webhook", "webhook": told, **runs},
            "commit": {"interval": "1h", **(commit or {})},
        }
        async with run_loop(explorer, **sections) as loop:
            endpoint.sidecar = loop.url
            yield loop


async def ended(loop: Loop, task_id: str, *states: str) -> list[dict[str, Any]]:
    """The runs of the task, once they are in these states."""

    async def there() -> Any:
        task = await loop.task(task_id)
        runs = [run for group in (task or {"groups": []})["groups"] for run in group["runs"]]
        return runs if sorted(run["state"] for run in runs) == sorted(states) else None

    found: list[dict[str, Any]] = await until(there)
    return found
