"""Agents at work: chats, streams, tools, feedback, marks, replays, the facade. Each remembers what it was told."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import openai

from chaos.record import Record, Recording, canary
from chaos.world import World

_PATIENCE = 5.0
"""Seconds that a request to the control API may take before it is sent again."""
_PATIENCE_TO_ERASE = 15.0
"""The same for `DELETE /data`, which waits up to 10 s for a delivery."""
_NO_ANSWER = (openai.APIError, httpx.HTTPError, ValueError)
"""What the SDK raises where an answer fails; the last, where it was garbled and is no UTF-8, or no JSON."""


class Agent:
    """One agent with its key, which goes on until the world ends.

    What the control API does not acknowledge it posts again, at any sidecar, until it does.
    """

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._record: Record = world.record
        self._name = f"agent{number}"
        self._rng = random.Random(f"{world.schedule.seed} {number}")
        secret = f"chaos-{self._rng.getrandbits(96):024x}"
        self._record.secrets.add(secret)
        self._secret = secret
        self._numbers = itertools.count()
        self._recorded = httpx.AsyncClient(transport=Recording(self._record), timeout=10, headers=world.headers)
        self._plain = httpx.AsyncClient(timeout=10, headers=world.headers)
        self._control = httpx.AsyncClient(timeout=_PATIENCE, headers=world.headers)

    async def live(self) -> None:
        kinds: list[tuple[Callable[[str], Awaitable[None]], int]] = [
            (self._chat, 4),
            (self._stream, 4),
            (self._tool, 2),
            (self._leave, 1),
            (self._replay, 2),
            (self._facade, 2),
            (self._erase, 1),
        ]
        try:
            while not self._world.ending.is_set():
                kind = self._rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
                await kind(f"{self._name}-{next(self._numbers)}")
                await asyncio.sleep(self._rng.uniform(0, 0.1))
        finally:
            for client in (self._recorded, self._plain, self._control):
                await client.aclose()

    def _sdk(self, base: str, *, recorded: bool) -> openai.AsyncOpenAI:
        client = self._recorded if recorded else self._plain
        return openai.AsyncOpenAI(
            base_url=self._url() + base, api_key=self._secret, max_retries=self._rng.choice((0, 1)), http_client=client
        )

    def _url(self) -> str:
        return self._rng.choice(self._world.urls)

    def _call(self, task: str, session: str | None = None) -> dict[str, Any]:
        headers = {
            "x-slipstream-task-id": task,
            "x-slipstream-session-id": session or self._name,
            "x-slipstream-metadata": json.dumps({"note": canary(task)}),
            "x-pace": f"{self._rng.randint(1, 6)}x{self._rng.choice((0, 0.01, 0.05))}",
        }
        content = f"{task} asks {canary(task)}"
        return {"model": "prod", "messages": [{"role": "user", "content": content}], "extra_headers": headers}

    async def _chat(self, task: str) -> None:
        try:
            answer = await self._sdk("/v1", recorded=True).chat.completions.create(**self._call(task))
        except _NO_ANSWER:
            return
        await self._say(task, answer.id)

    async def _stream(self, task: str) -> None:
        msg_id = None
        try:
            stream = await self._sdk("/v1", recorded=True).chat.completions.create(**self._call(task), stream=True)
            async for chunk in stream:
                msg_id = chunk.id
        except _NO_ANSWER:
            return
        if msg_id is not None:
            await self._say(task, msg_id)

    async def _tool(self, task: str) -> None:
        """Two calls: the first one's answer uses a tool."""
        call = self._call(task)
        call["messages"][0]["content"] += " and use the tool"
        sdk = self._sdk("/v1", recorded=True)
        try:
            first = await sdk.chat.completions.create(**call)
            message = first.choices[0].message
            used = (message.tool_calls or [])[0].id
            call["messages"] += [
                message.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": used, "content": f"{task} found {canary(task)}"},
            ]
            second = await sdk.chat.completions.create(**call)
        except (*_NO_ANSWER, IndexError):
            return
        await self._say(task, second.id)

    async def _leave(self, task: str) -> None:
        """A stream that the agent leaves in its middle."""
        call = self._call(task)
        call["extra_headers"]["x-pace"] = "20x0.1"
        try:
            stream = await self._sdk("/v1", recorded=True).chat.completions.create(**call, stream=True)
            async for _ in stream:
                break
            await stream.close()
        except _NO_ANSWER:
            return

    async def _say(self, task: str, msg_id: str) -> None:
        """Feedback and a mark for an answer."""
        body = {"rating": self._rng.randint(1, 5), "comment": canary(task)}
        body |= self._rng.choice(({"task_id": task}, {"msg_id": msg_id}))
        if (said := await self._acknowledged("/feedback", body, 202)) is not None:
            self._record.feedback.append(said["id"])
        if self._rng.random() < 0.5:
            mark = {"task_id": task, "labels": ["seen"], "metadata": {"note": canary(task)}}
            said = await self._acknowledged("/marks", mark, 202)
            if said is not None:
                self._record.marks.append(said["id"])

    async def _replay(self, task: str) -> None:
        """A group of two runs, of one or two calls each."""
        opened = await self._acknowledged(f"/runs/{task}", {"runs": 2}, 201, also=(409,))
        if opened is None or "runs" not in opened:  # 409: the first try of this very request had opened it
            return
        for run in opened["runs"]:
            reward, error = self._rng.random(), None
            try:
                sdk = self._sdk(run["base_url"], recorded=False)
                for number in range(self._rng.randint(1, 2)):
                    call = self._call(task)
                    call["messages"][0]["content"] = f"{task} again {number} {canary(task)}"
                    if self._rng.random() < 0.5:
                        async for _ in await sdk.chat.completions.create(**call, stream=True):
                            pass
                    else:
                        await sdk.chat.completions.create(**call)
            except _NO_ANSWER as caught:
                error = repr(caught)
                self._record.broken.add((task, run["run_id"]))
            ending = {"reward": reward} if error is None else {"error": f"a call failed, {canary(task)}"}
            path = f"/runs/{task}/{run['run_id']}/finish"
            ended = await self._acknowledged(path, ending, 200, also=(409,))
            if ended is not None and error is None and "error" not in ended:
                self._record.finished[task, run["run_id"]] = reward

    async def _facade(self, task: str) -> None:
        """Two runs of a client that was written for Trinity."""
        sdk = self._sdk("/explorer/v1", recorded=False)
        for run_id in range(2):
            try:
                answer = await sdk.chat.completions.create(
                    model="any", messages=[{"role": "user", "content": f"{task} asks the policy {canary(task)}"}]
                )
            except _NO_ANSWER:
                return
            reward = self._rng.random()
            body = {"msg_ids": [answer.id], "reward": reward, "task_id": task, "run_id": run_id}
            said = await self._acknowledged("/explorer/feedback", body, 200)
            if said == {"status": "success"}:
                self._record.facade[answer.id] = reward

    async def _erase(self, task: str) -> None:
        """A session of its own, of which everything is deleted again."""
        session = f"{task}-session"
        sdk = self._sdk("/v1", recorded=True).with_options(max_retries=0)
        said = {"rating": 1, "comment": canary(task)}
        saying = [("/feedback", said | {"session_id": session})]
        try:  # all of it once: of what got no answer a part may still be under way, and come after the deletion
            await sdk.chat.completions.create(**self._call(task, session))
            apart = self._world.clock is not None  # a sidecar's processes learn one by one what their clock is set to
            if apart or self._rng.random() < 0.5:
                if await self._knows(task):  # else nobody can tell whose task that was
                    mark = {"task_id": task, "metadata": {"note": canary(task)}}
                    saying += [("/feedback", said | {"task_id": task}), ("/marks", mark)]
                elif apart:  # and of what is on its way nobody can tell whether it was before
                    return
            for path, body in saying:
                await self._control.post(self._url() + path, json=body)
        except _NO_ANSWER:
            return
        await asyncio.sleep(self._rng.uniform(0, 1))
        self._record.erased[task] = None
        while True:
            path = f"/data?session_id={session}"
            erased = await self._acknowledged(path, None, 200, method="DELETE", patience=_PATIENCE_TO_ERASE)
            if erased is None:
                return
            if not any(erased["pending"].values()):
                self._record.erased[task] = erased
                return
            if self._world.ending.is_set():
                return

    async def _knows(self, task: str) -> bool:
        """Whether the task is in the store, within a second."""
        for _ in range(10):
            if (await self._control.get(f"{self._url()}/tasks/{task}")).status_code == 200:
                return True
            await asyncio.sleep(0.1)
        return False

    async def _acknowledged(
        self,
        path: str,
        body: dict[str, Any] | None,
        status: int,
        also: tuple[int, ...] = (),
        method: str = "POST",
        patience: float = _PATIENCE,
    ) -> Any:
        """Send it until it is acknowledged; None where the world ended before."""
        route = "/" + path.split("/")[1].partition("?")[0]
        while True:
            try:
                response = await self._control.request(method, self._url() + path, json=body, timeout=patience)
            except httpx.TransportError:
                if self._world.ending.is_set():
                    return None
            else:
                self._record.statuses[route, response.status_code] += 1
                if response.status_code == status or response.status_code in also:
                    return response.json()
                if response.status_code == 503 and "retry-after" not in response.headers:
                    self._record.wrong.append(f"{path}: a 503 without Retry-After")
                if response.status_code not in (429, 502, 503, 504):
                    self._record.wrong.append(f"{path}: {response.status_code} {response.text[:200]}")
                    return None
                if self._world.ending.is_set():
                    return None
            await asyncio.sleep(0.1)
