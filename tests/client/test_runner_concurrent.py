"""Two hundred concurrent calls of agents with replays on: no run mixes with another."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from loops import RunLoop
from scripted import ScriptedExplorer
from serving import until
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import slipstream_client as slipstream

CALLS = 200
RUNS = 2


class Witness(ScriptedExplorer):
    """Answers with the answer's own id, and remembers what each was an answer to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[str, list[dict[str, Any]]] = {}

    async def _chat(self, request: Request) -> Response:
        messages = (await request.json())["messages"]
        answer = json.loads((await super()._chat(request)).body)
        answer["choices"][0]["message"]["content"] = answer["id"]
        self.asked[answer["id"]] = messages
        return JSONResponse(answer)


def questions(marker: str) -> list[str]:
    """What the agent of this marker asks, one call after the other: two or three."""
    return [f"{marker} step {number}" for number in range(2 + int(marker.split("-")[1]) % 2)]


def ended(stats: slipstream.RunnerStats) -> int:
    """Runs that are over, however they ended."""
    return stats.finished + sum(stats.failed.values()) + RUNS * sum(stats.dropped.values())


@pytest.mark.slow
async def test_two_hundred_concurrent_calls_do_not_mix(run_loop: RunLoop) -> None:
    explorer = Witness()
    runs: list[slipstream.RunResult] = []
    in_threads, on_loop = threading.Barrier(CALLS // 2), asyncio.Barrier(CALLS // 2)

    def reward(run: slipstream.RunResult) -> float:
        runs.append(run)
        return 1.0 if run.metadata["reference"] == run.args[0] else 0.0

    def said(question: str, before: list[dict[str, Any]]) -> dict[str, Any]:
        return {"model": "prod", "messages": [*before, {"role": "user", "content": question}]}

    def went_on(call: dict[str, Any], answer: Any) -> list[dict[str, Any]]:
        return [*call["messages"], {"role": "assistant", "content": answer.choices[0].message.content}]

    async with run_loop(explorer, selection={"sampling": {"rate": 0.0}}) as loop:
        slipstream.configure(loop.url, timeout=60)  # none of them is lost to a machine that stands still for a moment
        runner = slipstream.TrainingRunner(slipstream.SamplingRate(1), reward, repeat_time=RUNS, concurrency=20)
        with slipstream.openai() as sync_client, ThreadPoolExecutor(CALLS // 2) as pool:
            async with slipstream.async_openai() as client, runner:

                @runner.agent
                def agent(marker: str) -> list[str]:
                    if not slipstream.is_replay():
                        in_threads.wait(60)
                    messages: list[dict[str, Any]] = []
                    for question in questions(marker):
                        call = said(question, messages)
                        messages = went_on(call, sync_client.chat.completions.create(**call))
                    return [str(message["content"]) for message in messages[1::2]]

                @runner.agent
                async def async_agent(marker: str) -> list[str]:
                    if not slipstream.is_replay():
                        await on_loop.wait()
                    messages: list[dict[str, Any]] = []
                    for question in questions(marker):
                        call = said(question, messages)
                        messages = went_on(call, await client.chat.completions.create(**call))
                    return [str(message["content"]) for message in messages[1::2]]

                def in_thread(marker: str) -> list[str]:
                    with slipstream.mark(task_id=f"task-{marker}", reference=marker):
                        return agent(marker)

                async def in_task(marker: str) -> list[str]:
                    with slipstream.mark(task_id=f"task-{marker}", reference=marker):
                        return await async_agent(marker)

                running = asyncio.get_running_loop()
                names = [f"{kind}-{number}" for kind in ("sync", "async") for number in range(CALLS // 2)]
                answers = await asyncio.gather(
                    *(running.run_in_executor(pool, in_thread, name) for name in names[: CALLS // 2]),
                    *(in_task(name) for name in names[CALLS // 2 :]),
                )
                await until(lambda: ended(runner.stats) == CALLS * RUNS, 600)
        [delivered] = explorer.committed

    assert answers == [[f"echo: {question}" for question in questions(name)] for name in names]
    stats = runner.stats
    assert (stats.calls, stats.selected, stats.finished) == (CALLS, CALLS, CALLS * RUNS)
    assert (stats.dropped, stats.failed) == ({}, {})
    assert Counter(run.args[0] for run in runs) == dict.fromkeys(names, RUNS)
    for run in runs:
        marker = run.args[0]
        assert run.task_id == f"task-{marker}"
        assert run.output == list(run.msg_ids)  # each answer came back to the run that asked, in order
        conversation: list[dict[str, Any]] = []
        for msg_id, question in zip(run.msg_ids, questions(marker), strict=True):
            conversation.append({"role": "user", "content": question})
            assert explorer.asked[msg_id] == conversation
            conversation.append({"role": "assistant", "content": msg_id})
    gathered = [msg_id for run in runs for msg_id in run.msg_ids]
    assert sorted(gathered) == sorted(explorer.asked)
    assert len(set(gathered)) == len(gathered)
    expected = {(f"{run.task_id}.replay", run.run_id, msg_id, 1.0) for run in runs for msg_id in run.msg_ids}
    assert {(one["task_id"], one["run_id"], one["msg_id"], one["reward"]) for one in delivered} == expected
    assert len(delivered) == len(expected)
