"""Agent replays behind a load balancer: the calls of a run and its end come to different sidecars."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from loops import Loop
from replaying import finish, open_runs, replay
from scripted import ScriptedExplorer
from serving import serving, until
from sidecars_sharing import LEASE, sidecar_processes, sidecars
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

MESSAGES = [{"role": "user", "content": "hello"}]


def _path(task_id: str, run_id: int) -> str:
    return f"/runs/{task_id}/{run_id}/v1/chat/completions"


async def _ask(loop: Loop, task_id: str = "t", run_id: int = 0) -> str:
    response = await loop.client.post(_path(task_id, run_id), json={"messages": MESSAGES})
    assert response.status_code == 200, response.text
    return str(response.json()["id"])


async def _stream(loop: Loop, begun: asyncio.Event, task_id: str = "t", run_id: int = 0) -> str:
    """A streamed call; returns all that came of it."""
    text = ""
    body = {"messages": MESSAGES, "stream": True}
    async with loop.client.stream("POST", _path(task_id, run_id), json=body) as response:
        async for piece in response.aiter_text():
            text += piece
            begun.set()
    return text


async def test_calls_and_the_end_of_a_run_may_come_to_any_sidecar(new_postgres: Callable[[], str]) -> None:
    explorer = ScriptedExplorer()
    async with sidecars(new_postgres(), explorer, 3) as loops:
        await open_runs(loops[0], runs=2)
        made: dict[int, list[str]] = {0: [], 1: []}
        for step in range(9):
            for run_id in (0, 1):
                made[run_id].append(await _ask(loops[(step + run_id) % 3], run_id=run_id))
        for run_id in (0, 1):
            ended = await finish(loops[run_id], run_id=run_id, reward=run_id)
            assert (ended["state"], ended["msg_ids"]) == ("scored", made[run_id]), "in the order of the agent's calls"
        assert (await loops[2].commit())["experiences"] == 18
        late = await loops[1].client.post(_path("t", 0), json={"messages": MESSAGES})
        assert (late.status_code, late.json()["error"]["code"]) == (410, "run_closed")
        late = await loops[2].client.post("/runs/t/0/finish", json={"reward": 1})
        assert late.status_code == 409


@pytest.mark.slow
async def test_the_end_of_a_run_waits_for_an_answer_that_another_sidecar_is_sending(
    new_postgres: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.runs.in_flight._PATIENCE", 60)
    explorer = ScriptedExplorer()
    explorer.pace.clear()
    async with sidecars(new_postgres(), explorer) as (one, other):
        await open_runs(one)
        begun = asyncio.Event()
        streaming = asyncio.create_task(_stream(one, begun))
        await begun.wait()
        ending = asyncio.create_task(finish(other, reward=1))
        assert not (await asyncio.wait([ending], timeout=0.3))[0]
        explorer.pace.set()
        ended = await ending
        assert "[DONE]" in await streaming
        assert (ended["state"], len(ended["msg_ids"])) == ("scored", 1)


@pytest.mark.slow
async def test_a_run_that_is_ended_amid_an_answer_of_another_sidecar_has_failed(
    new_postgres: Callable[[], str],
) -> None:
    explorer = ScriptedExplorer()
    async with sidecars(new_postgres(), explorer) as (one, other):
        await open_runs(one)
        await _ask(one)
        explorer.pace.clear()
        begun = asyncio.Event()
        streaming = asyncio.create_task(_stream(one, begun))
        await begun.wait()
        assert (await finish(other, reward=1))["state"] == "failed"
        explorer.pace.set()
        with pytest.raises(httpx.RemoteProtocolError):
            await streaming
        assert (await one.commit())["experiences"] == 0


@pytest.mark.slow
async def test_a_call_of_which_nothing_was_sent_has_no_part_in_the_run(new_postgres: Callable[[], str]) -> None:
    explorer = ScriptedExplorer()
    async with sidecars(new_postgres(), explorer) as (one, other):
        await open_runs(one)
        first = await _ask(one)
        explorer.hold.clear()
        hanging = asyncio.create_task(one.client.post(_path("t", 0), json={"messages": MESSAGES}))
        await until(lambda: len(explorer.chats) == 2)
        ended = await finish(other, reward=1)
        assert (ended["state"], ended["msg_ids"]) == ("scored", [first])
        explorer.hold.set()
        assert (await hanging).status_code == 410


@pytest.mark.slow
async def test_a_run_whose_call_is_under_way_at_another_sidecar_is_not_given_up(
    new_postgres: Callable[[], str],
) -> None:
    explorer = ScriptedExplorer()
    async with sidecars(new_postgres(), explorer, runs={"replay_timeout": "3s"}) as (one, other):
        await open_runs(one)
        explorer.hold.clear()
        asking = asyncio.create_task(_ask(one))
        await open_runs(other, "idle")

        async def given_up() -> bool:
            return bool((await replay(other, "idle"))["state"] == "dropped")

        await until(given_up)  # the steps that give up have come to runs of that age
        explorer.hold.set()
        msg_id = await asking
        assert (await finish(other, reward=1))["msg_ids"] == [msg_id]


@pytest.mark.slow
async def test_a_sidecar_that_is_killed_takes_the_runs_with_it_whose_calls_it_cut_and_no_others(
    tmp_path: Path, new_postgres: Callable[[], str]
) -> None:
    explorer = ScriptedExplorer()
    async with sidecar_processes(tmp_path, new_postgres(), explorer) as (one, other):
        for task in ("cut", "answered", "elsewhere"):
            await open_runs(other.loop, task)
        answered = await _ask(one.loop, "answered")
        explorer.hold.clear()
        cut = asyncio.create_task(_ask(one.loop, "cut"))
        await until(lambda: len(explorer.chats) == 2)
        elsewhere = asyncio.create_task(_ask(other.loop, "elsewhere"))
        await until(lambda: len(explorer.chats) == 3)
        one.kill()
        with pytest.raises((httpx.TransportError, AssertionError)):
            await cut

        async def failed() -> Any:
            [run] = (await replay(other.loop, "cut"))["runs"]
            return run["state"] == "failed" and run

        assert "may not have reached its agent" in (await until(failed, 30))["error"]
        explorer.hold.set()
        answer = await elsewhere
        ended = await finish(other.loop, "elsewhere", reward=1)
        assert (ended["state"], ended["msg_ids"]) == ("scored", [answer])
        more = await _ask(other.loop, "answered")
        assert (await finish(other.loop, "answered", reward=1))["msg_ids"] == [answered, more]
        assert (await other.loop.commit())["experiences"] == 3


@pytest.mark.slow
async def test_a_sidecar_that_was_stopped_does_not_bring_back_the_run_whose_call_it_held(
    tmp_path: Path, new_postgres: Callable[[], str]
) -> None:
    explorer = ScriptedExplorer()
    async with sidecar_processes(tmp_path, new_postgres(), explorer) as (one, other):
        await open_runs(one.loop)
        explorer.hold.clear()
        asking = asyncio.create_task(one.loop.client.post(_path("t", 0), json={"messages": MESSAGES}))
        await until(lambda: explorer.chats)
        go_on = one.stop_training()

        async def failed() -> bool:
            return bool((await replay(other.loop))["runs"][0]["state"] == "failed")

        await until(failed, 10 * LEASE)
        explorer.hold.set()
        go_on()
        assert (await asking).status_code == 410
        assert (await replay(one.loop))["runs"][0]["msg_ids"] == []


class Endpoint:
    """An endpoint that runs agents again, and says so (202).

    Attributes:
        told: of each request, the address that the agent is to call.
        hold: while it is not set, answers wait.
    """

    def __init__(self) -> None:
        self.told: list[str] = []
        self.hold = asyncio.Event()
        self.hold.set()

    def app(self) -> Starlette:
        async def tell(request: Request) -> Response:
            self.told.append(json.loads(await request.body())["base_url"])
            await self.hold.wait()
            return JSONResponse({}, 202)

        return Starlette(routes=[Route("/replay", tell, methods=["POST"])])


def _webhook(url: str, **more: Any) -> dict[str, Any]:
    told = {"url": f"{url}/replay", "secret": "hush", "base_url": "http://balancer:8100", "allow_private": True}
    return {"mode": "webhook", "repeat_time": 2, "webhook": told, **more}


@pytest.mark.slow
async def test_an_endpoint_is_told_of_each_run_once(new_postgres: Callable[[], str]) -> None:
    endpoint = Endpoint()
    async with (
        serving(endpoint.app()) as url,
        sidecars(new_postgres(), ScriptedExplorer(), 3, runs=_webhook(url, concurrency=100)) as loops,
    ):
        for number in range(12):
            await loops[number % 3].chat("hello", {"x-slipstream-task-id": f"t{number}"})
        await until(lambda: len(endpoint.told) >= 24)
        for number in range(12):
            for run_id in (0, 1):
                await _ask(loops[(number + run_id) % 3], f"t{number}", run_id)
                await finish(loops[(number + run_id + 1) % 3], f"t{number}", run_id, reward=run_id)
        assert (await loops[0].commit())["groups"] == 12
        addresses = {f"http://balancer:8100/runs/t{number}/{run_id}/v1" for number in range(12) for run_id in (0, 1)}
        assert sorted(endpoint.told) == sorted(addresses)


@pytest.mark.slow
async def test_runs_that_a_killed_sidecar_was_telling_of_are_told_of_again(
    tmp_path: Path, new_postgres: Callable[[], str]
) -> None:
    endpoint = Endpoint()
    endpoint.hold.clear()
    async with (
        serving(endpoint.app()) as url,
        sidecar_processes(tmp_path, new_postgres(), ScriptedExplorer(), runs=_webhook(url)) as (one, other),
    ):
        await one.loop.chat("hello", {"x-slipstream-task-id": "t"})
        await until(lambda: len(endpoint.told) == 2, 30)
        for member in (one, other):  # either of them may be telling
            member.kill()
            await member.process.ended()
        endpoint.hold.set()
        for member in (one, other):
            await member.process.start()
        await until(lambda: len(endpoint.told) == 4, 30)
        assert len(set(endpoint.told)) == 2
        for run_id in (0, 1):
            await _ask(one.loop, run_id=run_id)
            await finish(other.loop, run_id=run_id, reward=run_id)
        assert (await other.loop.commit())["groups"] == 1
