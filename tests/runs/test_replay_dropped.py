"""What drops a run of an agent replay whole: a call that came to nothing, or an end that does not come."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import openai
import pytest
from loops import RunLoop
from replaying import BODY, CHAT, ask, finish, open_runs, replay, sdk
from scripted import ScriptedExplorer
from serving import serving, until
from starlette.types import Message
from stores import ON_BOTH_STORES
from training_side import connected, training_side

from slipstream.dialects.form import Dialect
from slipstream.errors import RequestError


@pytest.mark.sampled(1)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 500])
async def test_a_call_that_fails_in_the_end_drops_the_run(run_loop: RunLoop, status: int, stream: bool) -> None:
    async with run_loop(facade={"retry_for": 0}) as loop:
        for run in (await open_runs(loop, runs=2))["runs"]:
            async with sdk(loop, run, max_retries=0) as client:
                await ask(client)
                if run["run_id"] == 0:
                    loop.explorer.faults["/v1/chat/completions"] = [status]
                    with pytest.raises(openai.APIStatusError) as caught:
                        await ask(client, stream=stream)
                    assert caught.value.status_code == status
                    with pytest.raises(openai.APIStatusError, match=f"the Explorer answered {status}") as caught:
                        await ask(client)
                    assert (caught.value.status_code, caught.value.code) == (410, "run_closed")
        late = await loop.client.post("/runs/t/0/finish", json={"reward": 1})
        assert (late.status_code, late.json()["error"]["code"]) == (409, "run_closed")
        await finish(loop, run_id=1, reward=1)
        seen = await replay(loop)
        assert [run["state"] for run in seen["runs"]] == ["failed", "scored"]
        assert seen["state"] == "dropped", "there is nothing to compare the other one with"
        assert (await loop.commit())["experiences"] == 0


async def test_a_stream_that_is_cut_drops_the_run(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        await open_runs(loop)
        loop.explorer.cut_after = 2
        with pytest.raises(httpx.RemoteProtocolError):
            await loop.client.post(CHAT, json={**BODY, "stream": True})
        [run] = (await replay(loop))["runs"]
        assert (run["state"], run["error"]) == ("failed", "an answer was not whole: truncated")


@pytest.mark.parametrize("stream", [False, True])
async def test_an_agent_that_leaves_before_its_answer_drops_the_run(run_loop: RunLoop, stream: bool) -> None:
    async with run_loop() as loop:
        await open_runs(loop)
        waits = loop.explorer.pace if stream else loop.explorer.hold
        waits.clear()
        asked = asyncio.create_task(loop.client.post(CHAT, json={**BODY, "stream": stream}))
        await until(lambda: loop.explorer.chats)
        asked.cancel()

        async def failed() -> bool:
            return bool((await replay(loop))["runs"][0]["state"] == "failed")

        await until(failed)
        waits.set()


async def test_an_agent_that_leaves_before_it_has_the_answer_that_was_stored_drops_the_run(store_url: str) -> None:
    gone = asyncio.Event()

    async def send(message: Message) -> None:
        gone.set()
        await asyncio.Event().wait()

    async with serving(ScriptedExplorer().app()) as url, training_side(store_url, url) as sidecar:
        await sidecar.runs.replays.open("t", 1, [], {}, None)
        await sidecar.runs.replays.answer("t", 0, Dialect.CHAT, connected(gone), send)
        with pytest.raises(RequestError, match="its agent went away"):
            await sidecar.runs.replays.admit("t", 0)


async def test_an_answer_that_its_engine_broke_off_drops_the_run(run_loop: RunLoop) -> None:
    class Aborts(ScriptedExplorer):
        def _record(self, answer: dict[str, Any]) -> None:
            answer["choices"][0]["finish_reason"] = "abort"
            super()._record(answer)

    async with run_loop(Aborts()) as loop:
        await open_runs(loop)
        response = await loop.client.post(CHAT, json=BODY)
        assert (response.status_code, response.json()["error"]["code"]) == (410, "run_closed")
        assert (await replay(loop))["runs"][0]["error"] == "an answer was not whole: aborted"


async def test_what_is_no_chat_is_refused_and_drops_the_run(run_loop: RunLoop) -> None:
    refused = ((b"[]", 400, None), (b"{", 400, None), (b'{"messages": []}', 422, "messages"),
               (b'{"messages": 7}', 422, "messages"))  # fmt: skip
    async with run_loop() as loop:
        group = await open_runs(loop, runs=len(refused))
        for run, (body, status, param) in zip(group["runs"], refused, strict=True):
            response = await loop.client.post(f"{run['base_url']}/chat/completions", content=body)
            assert (response.status_code, response.json()["error"]["param"]) == (status, param)
        assert {run["state"] for run in (await replay(loop))["runs"]} == {"failed"}
        assert loop.explorer.chats == []


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_outlives_its_run_is_cut_and_not_counted(run_loop: RunLoop, stream: bool) -> None:
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        async with sdk(loop, run) as client:
            answered = await ask(client)
        loop.explorer.hold.clear()
        straggler = asyncio.create_task(loop.client.post(CHAT, json={**BODY, "stream": stream}))
        await until(lambda: len(loop.explorer.chats) == 2)
        assert (await finish(loop, reward=1))["msg_ids"] == [answered]
        loop.explorer.hold.set()
        if stream:
            with pytest.raises(httpx.RemoteProtocolError):
                await straggler
        else:
            assert (await straggler).status_code == 410
        assert (await replay(loop))["runs"][0]["msg_ids"] == [answered]
        assert 'slipstream_replay_calls_total{state="straggler"} 1.0' in (await loop.client.get("/metrics")).text
        assert (await loop.commit())["experiences"] == 1


@pytest.mark.slow
async def test_the_end_of_a_run_waits_for_an_answer_that_its_agent_has_begun_to_read(
    run_loop: RunLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.runs.in_flight._PATIENCE", 60)
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        loop.explorer.pace.clear()
        async with sdk(loop, run) as client:
            stream = await client.chat.completions.create(
                model="gpt-4o", messages=[{"role": "user", "content": "hello"}], stream=True
            )
            begun = await anext(aiter(stream))
            ending = asyncio.create_task(finish(loop, reward=1))
            assert await asyncio.wait({ending}, timeout=0.5) == (set(), {ending})
            loop.explorer.pace.set()
            assert (await ending)["msg_ids"] == [begun.id]
        assert (await loop.commit())["experiences"] == 1


async def test_a_run_that_ends_amid_an_answer_is_dropped_whole(
    run_loop: RunLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.runs.in_flight._PATIENCE", 0.05)
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        async with sdk(loop, run) as client:
            await ask(client)
            loop.explorer.pace.clear()
            stream = await client.chat.completions.create(
                model="gpt-4o", messages=[{"role": "user", "content": "hello"}], stream=True
            )
            await anext(aiter(stream))
            assert (await finish(loop, reward=1))["state"] == "failed"
            loop.explorer.pace.set()
        assert "amid an answer" in (await replay(loop))["runs"][0]["error"]
        assert (await loop.commit())["experiences"] == 0


async def test_a_run_without_a_call_teaches_nothing(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        await open_runs(loop)
        assert (await finish(loop, reward=1)) == {
            "task_id": "t", "run_id": 0, "state": "failed", "msg_ids": [], "policy_version": None,
        }  # fmt: skip
        assert (await loop.commit())["experiences"] == 0


@pytest.mark.slow
@ON_BOTH_STORES
async def test_a_run_that_nobody_ends_is_given_up(run_loop: RunLoop) -> None:
    async with run_loop(runs={"replay_timeout": "1500ms"}) as loop:
        await open_runs(loop)
        loop.explorer.hold.clear()
        call = asyncio.create_task(loop.client.post(CHAT, json=BODY))
        await until(lambda: loop.explorer.chats)
        await asyncio.sleep(3)  # longer than it is waited for: a call under way keeps its run open
        loop.explorer.hold.set()
        assert (await call).status_code == 200

        async def dropped() -> bool:
            return bool((await replay(loop))["state"] == "dropped")

        await until(dropped)
        assert "runs.replay_timeout" in (await replay(loop))["runs"][0]["error"]
        assert 'slipstream_replays_total{state="expired"} 1.0' in (await loop.client.get("/metrics")).text
