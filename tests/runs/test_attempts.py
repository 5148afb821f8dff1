"""What costs a run one of its attempts, and what becomes of a group that loses its runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from loops import Loop, RunLoop
from scripted import ScriptedExplorer
from serving import until
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response


class TrinityLike(ScriptedExplorer):
    """Says 500 in Trinity's words, either without an engine or to an answer that it could not record.

    Attributes:
        reloading: it has no engine, and hands no chat on.
        lost: so many of the next answers cannot be recorded.
    """

    reloading = False
    lost = 0
    refused = 0

    async def _chat(self, request: Request) -> Response:
        if self.reloading:
            self.refused += 1
            return PlainTextResponse("Internal Server Error", 500)
        if self.lost:
            self.lost -= 1
            self.chats.append(await request.json())
            return PlainTextResponse("Internal Server Error", 500)
        return await super()._chat(request)


async def _breaker(loop: Loop) -> str:
    state: str = (await loop.status())["explorer"]["breaker"]
    return state


@pytest.mark.slow
async def test_an_explorer_without_an_engine_costs_no_attempt(run_loop: RunLoop) -> None:
    explorer = TrinityLike()
    explorer.reloading = True
    async with run_loop(explorer, runs={"max_attempts": 1}) as loop:
        await loop.chat("hello")
        await until(lambda: explorer.refused > 2)
        explorer.reloading = False
        await until(lambda: loop.ready(1), 30)


@pytest.mark.slow
async def test_answers_that_were_lost_cost_attempts_and_leave_the_breaker_closed(run_loop: RunLoop) -> None:
    explorer = TrinityLike()
    explorer.lost = 8
    async with run_loop(explorer, runs={"max_attempts": 8, "repeat_time": 4}) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})

        async def ready() -> bool:
            assert await _breaker(loop) == "closed"
            return await loop.ready(4)

        await until(ready, 60)
        assert len(explorer.chats) == 12


@pytest.mark.slow
async def test_an_answer_that_the_engine_broke_off_is_asked_for_again(run_loop: RunLoop) -> None:
    class Aborting(ScriptedExplorer):
        async def _chat(self, request: Request) -> Response:
            response = await super()._chat(request)
            answer = json.loads(bytes(response.body))
            if len(self.chats) <= 2:
                answer["choices"][0]["finish_reason"] = "abort" if len(self.chats) == 1 else None
            return JSONResponse(answer)

    async with run_loop(Aborting(), runs={"max_attempts": 3}) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        await until(lambda: loop.ready(1), 30)
        task = await loop.task("t")
        assert task is not None
        assert len(loop.explorer.chats) == 3
        await loop.commit()
        ((experience,),) = loop.explorer.committed
        assert experience["msg_id"].endswith("-2")  # the third answer, the first whole one


async def test_a_group_of_which_one_run_is_left_is_dropped_and_says_why(run_loop: RunLoop) -> None:
    async with run_loop(runs={"repeat_time": 2, "concurrency": 1}) as loop:
        loop.explorer.faults["/v1/chat/completions"] = [400]
        await loop.chat("hello", {"x-slipstream-task-id": "t"})

        async def dropped() -> Any:
            task = await loop.task("t")
            return task and task["groups"] and task["groups"][0]["state"] == "dropped" and task["groups"][0]["runs"]

        failed, left = await until(dropped)
        assert (failed["state"], left["state"]) == ("failed", "scored")
        assert left["reason"].startswith("not delivered: no other run of its group has a reward")
        assert (await loop.commit())["experiences"] == 0


async def test_a_group_that_was_planned_with_one_run_is_delivered(run_loop: RunLoop) -> None:
    async with run_loop(runs={"repeat_time": 1}) as loop:
        await loop.chat("hello")
        await until(lambda: loop.ready(1))
        assert (await loop.commit())["experiences"] == 1
