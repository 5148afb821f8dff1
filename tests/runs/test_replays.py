"""Agent replays: an agent run again at its run's address, and what comes of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from loops import Loop, RunLoop
from replaying import ask, finish, open_runs, replay, sdk
from scripted import ScriptedExplorer
from serving import serving, until
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive
from stores import ON_BOTH_STORES, stored_rows

from slipstream.config.settings import Settings
from slipstream.errors import RequestError
from slipstream.proxy.metrics import Board
from slipstream.sidecar import Sidecar
from slipstream.store.bodies import unpack
from slipstream.store.database import Database
from slipstream.store.replays import note_task
from slipstream.store.replays import open_runs as open_runs_of

CHAT = "/runs/t/0/v1/chat/completions"
BODY: dict[str, Any] = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]}


@asynccontextmanager
async def training_side(store_url: str, explorer_url: str) -> AsyncIterator[Sidecar]:
    """The sidecar without its servers."""
    sections = {"store": {"url": store_url}, "explorer": {"base_url": explorer_url}}
    sidecar = Sidecar(Settings.model_validate(sections), Board(1))
    await sidecar.start()
    try:
        yield sidecar
    finally:
        await sidecar.stop()


def _connected(gone: asyncio.Event | None = None) -> Receive:
    """An agent that sends a chat, and stays until this is set."""
    leaves, messages = gone or asyncio.Event(), [json.dumps(BODY).encode()]

    async def receive() -> Message:
        if messages:
            return {"type": "http.request", "body": messages.pop()}
        await leaves.wait()
        return {"type": "http.disconnect"}

    return receive


async def _unheard(message: Message) -> None:
    """What an agent is sent."""


@ON_BOTH_STORES
async def test_a_replay_goes_out_whole_with_the_reward_of_each_run(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        group = await open_runs(loop, "order 17/a", 2, labels=["tuned"], metadata={"reference": "42"})
        assert group["group_id"] == "order 17/a.replay"
        assert [run["base_url"] for run in group["runs"]] == ["/runs/order%2017%2Fa/0/v1", "/runs/order%2017%2Fa/1/v1"]
        said = {}
        for run, reward in zip(group["runs"], (0.25, 1.0), strict=True):
            async with sdk(loop, run) as client:
                said[run["run_id"]] = [await ask(client, f"step {step}") for step in range(3)]
            ended = await finish(loop, "order 17/a", run["run_id"], reward=reward, breakdown={"right": reward})
            assert (ended["state"], ended["policy_version"]) == ("scored", 0)
            assert ended["msg_ids"] == said[run["run_id"]]
        assert (await loop.commit())["experiences"] == 6
        [commit] = loop.explorer.committed
        assert [(e["msg_id"], e["run_id"], e["reward"], e["task_id"]) for e in commit] == [
            (msg_id, run_id, reward, "order 17/a.replay")
            for run_id, reward in ((0, 0.25), (1, 1.0))
            for msg_id in said[run_id]
        ]
        seen = await replay(loop, "order 17/a")
        assert (seen["state"], seen["runs"][1]["breakdown"]) == ("delivered", {"right": 1.0})
        task = await loop.task("order%2017%2Fa")
        assert task is not None
        assert (task["labels"], task["metadata"]) == (["tuned"], {"reference": "42"})
        assert (task["selected"], task["reason"], task["calls"]) == (False, "replayed by its client", [])
        assert task["groups"][0]["runs"][0]["msg_ids"] == said[0]


async def test_the_explorer_is_asked_under_the_policys_name_and_hears_nothing_of_the_caller(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        async with sdk(loop, run) as client:
            await ask(client, temperature=0.3, user="somebody", metadata={"of": "production"}, n=2)
            assert (await client.models.list()).data[0].id == "/models/policy"
        assert loop.explorer.chats == [
            {"messages": BODY["messages"], "temperature": 0.3, "n": 2, "model": "/models/policy"}
        ]
        assert "authorization" not in loop.explorer.headers[0]
        assert not [name for name in loop.explorer.headers[0] if name.startswith("x-stainless")]
        await finish(loop, reward=1)
        assert (await loop.commit())["experiences"] == 2, "the Explorer keeps an experience of each choice"


async def test_a_stream_passes_as_it_arrives_and_is_kept(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        loop.explorer.pace.clear()
        async with sdk(loop, run) as client:
            stream = await client.chat.completions.create(
                model="gpt-4o", messages=BODY["messages"], stream=True, stream_options={"include_usage": True}
            )
            first = await anext(aiter(stream))
            loop.explorer.pace.set()
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
        assert text == "policysays1"
        assert loop.explorer.chats[0]["stream_options"] == {"include_usage": True}
        assert (await finish(loop, reward=1))["msg_ids"] == [first.id]


async def test_runs_at_the_same_time_keep_apart_and_their_calls_in_order(run_loop: RunLoop) -> None:
    runs, calls = 50, 4
    async with run_loop() as loop:
        groups = [await open_runs(loop, f"task {number}", 2) for number in range(runs // 2)]
        made: dict[tuple[str, int], list[str]] = {}

        async def agent(task_id: str, run: dict[str, Any]) -> None:
            async with sdk(loop, run, timeout=120) as client:
                for step in range(calls):
                    made.setdefault((task_id, run["run_id"]), []).append(await ask(client, f"{task_id} {step}"))
            await finish(loop, task_id, run["run_id"], reward=0.5)

        await asyncio.gather(*(agent(group["task_id"], run) for group in groups for run in group["runs"]))
        for group in groups:
            seen = await replay(loop, group["task_id"])
            assert [run["msg_ids"] for run in seen["runs"]] == [made[group["task_id"], run_id] for run_id in (0, 1)]
        assert (await loop.commit())["experiences"] == runs * calls
        assert len({e["msg_id"] for commit in loop.explorer.committed for e in commit}) == runs * calls


async def test_calls_are_in_the_order_in_which_they_began(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        loop.explorer.pace.clear()
        async with sdk(loop, run) as client:
            slow = await client.chat.completions.create(model="m", messages=BODY["messages"], stream=True)
            chunks = aiter(slow)
            first = await anext(chunks)
            second = await ask(client)
            loop.explorer.pace.set()
            async for _ in chunks:
                pass
        assert (await finish(loop, reward=1))["msg_ids"] == [first.id, second]


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


async def test_a_reload_of_the_explorer_is_waited_for(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        loop.explorer.faults["/v1/models"] = [503]
        loop.explorer.faults["/v1/chat/completions"] = [503, 500]
        async with sdk(loop, run, max_retries=0) as client:
            await ask(client)
        assert (await finish(loop, reward=1))["state"] == "scored"


async def test_a_model_of_another_name_is_found_again(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        async with sdk(loop, run, max_retries=0) as client:
            await ask(client)
            loop.explorer.model = "/models/another"
            loop.explorer.faults["/v1/chat/completions"] = [404]
            await ask(client)
        assert loop.explorer.chats[-1]["model"] == "/models/another"


async def test_a_call_under_the_old_name_is_asked_again_though_others_were_so_before_it(run_loop: RunLoop) -> None:
    class Restarted(ScriptedExplorer):
        slow = asyncio.Event()
        refused = 0

        async def _chat(self, request: Request) -> Response:
            body = await request.json()
            if body["model"] == self.model:
                return await super()._chat(request)
            self.refused += 1
            if body["messages"][0]["content"] == "slow":
                await self.slow.wait()
            return Response(status_code=404)

    explorer = Restarted()
    async with run_loop(explorer) as loop:
        [run] = (await open_runs(loop))["runs"]
        async with sdk(loop, run, max_retries=0) as client:
            await ask(client)
            explorer.model = "/models/another"
            slow = asyncio.create_task(ask(client, "slow"))
            await until(lambda: explorer.refused)
            await ask(client)
            explorer.slow.set()
            await slow
        assert len((await finish(loop, reward=1))["msg_ids"]) == 3


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
        await sidecar.replays.open("t", 1, [], {}, None)
        await sidecar.replays.answer("t", 0, _connected(gone), send)
        with pytest.raises(RequestError, match="its agent went away"):
            await sidecar.replays.admit("t", 0)


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


@pytest.mark.parametrize("path", ["embeddings", "responses", "chat/other"])
async def test_what_the_policy_model_has_not_is_said_in_words(run_loop: RunLoop, path: str) -> None:
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        response = await loop.client.post(f"{run['base_url']}/{path}", json=BODY)
        assert response.status_code == 404
        assert response.json()["error"]["message"].endswith(f"the policy model has no {path}")
        assert (await replay(loop))["runs"][0]["state"] == "open"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "chat/completions", "POST"),
        ("PUT", "chat/completions", "POST"),
        ("POST", "models", "GET"),
        ("DELETE", "models", "GET"),
    ],
)
async def test_another_method_on_what_a_run_answers_is_told_which_to_use(
    run_loop: RunLoop, method: str, path: str, allowed: str
) -> None:
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        response = await loop.client.request(method, f"{run['base_url']}/{path}")
        assert (response.status_code, response.headers["allow"]) == (405, allowed)
        assert response.json()["error"]["code"] == "http_error"
        assert (await replay(loop))["runs"][0]["state"] == "open"


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


async def test_the_end_of_a_run_waits_for_an_answer_that_its_agent_has_begun_to_read(run_loop: RunLoop) -> None:
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
    monkeypatch.setattr("slipstream.runs.calling._PATIENCE", 0.05)
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


@ON_BOTH_STORES
async def test_a_task_has_one_group_at_a_time_and_an_address_one_run(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        await open_runs(loop)
        again = await loop.client.post("/runs/t", json={"runs": 1})
        assert (again.status_code, again.json()["error"]["code"]) == (409, "already_open")
        assert (await finish(loop, error="the tool was away"))["state"] == "failed"
        group = await open_runs(loop, runs=2)
        assert group["group_id"] == "t.replay~1"
        assert [run["run_id"] for run in group["runs"]] == [1, 2]
        assert (await loop.client.post(CHAT, json=BODY)).status_code == 410
        for path in ("/runs/t/3/v1/chat/completions", "/runs/nobody/0/v1/chat/completions", "/runs/t/3/finish"):
            assert (await loop.client.post(path, json=BODY if "chat" in path else {})).status_code == 404
        assert (await loop.client.get("/runs/nobody")).status_code == 404


_WRONG: tuple[tuple[str, dict[str, Any], str | None], ...] = (
    ("", {}, "runs"),
    ("", {"runs": 0}, "runs"),
    ("", {"runs": True}, "runs"),
    ("x" * 64, {"runs": 1}, "task_id"),
    ("%00", {"runs": 1}, "task_id"),
    ("/0/finish", {"reward": 1.5}, "reward"),
    ("/0/finish", {"reward": float("nan")}, "reward"),
    ("/0/finish", {"breakdown": {"part": float("inf")}}, "breakdown.part"),
    ("/0/finish", {"reward": 1, "error": "why"}, None),
    ("/0/finish", {"side_effects": [{"tool": "mail", "outcome": "sent"}]}, "side_effects.0.outcome"),
    ("/0/finish", {"rewards": 1}, "rewards"),
    ("/-1/finish", {}, "run_id"),
)


async def test_what_is_wrong_is_named_and_changes_nothing(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        await open_runs(loop)
        about = {"content-type": "application/json"}
        for path, body, param in _WRONG:
            response = await loop.client.post(f"/runs/t{path}", content=json.dumps(body), headers=about)
            assert (response.status_code, response.json()["error"]["param"]) == (422, param), response.text
        assert [run["state"] for run in (await replay(loop))["runs"]] == ["open"]


@ON_BOTH_STORES
async def test_without_a_reward_the_calculators_see_the_whole_run(run_loop: RunLoop) -> None:
    async with run_loop(rewards={"calculators": [{"python": "replaying:about_replay"}]}) as loop:
        [run] = (await open_runs(loop, metadata={"reference": "42", "tool": "of the task"}))["runs"]
        async with sdk(loop, run) as client:
            await ask(client, "one")
            await ask(client, "two")
        ended = await finish(loop, metadata={"tool": "of the run"}, side_effects=[{"tool": "m", "outcome": "blocked"}])
        assert ended["state"] == "answered"
        await until(lambda: loop.ready(2))
        [seen] = (await replay(loop))["runs"]
        assert seen["breakdown"] == {
            "python": 0.5, "python.calls": 2.0, "python.metadata": 1.0, "python.production": 0.0,
        }  # fmt: skip
        assert seen["side_effects"] == [{"tool": "m", "outcome": "blocked"}]


async def test_a_run_without_a_call_teaches_nothing(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        await open_runs(loop)
        assert (await finish(loop, reward=1)) == {
            "task_id": "t", "run_id": 0, "state": "failed", "msg_ids": [], "policy_version": None,
        }  # fmt: skip
        assert (await loop.commit())["experiences"] == 0


@ON_BOTH_STORES
async def test_a_run_that_nobody_ends_is_given_up(run_loop: RunLoop) -> None:
    async with run_loop(runs={"replay_timeout": "500ms"}) as loop:
        await open_runs(loop)
        loop.explorer.hold.clear()
        call = asyncio.create_task(loop.client.post(CHAT, json=BODY))
        await until(lambda: loop.explorer.chats)
        await asyncio.sleep(1.5)  # longer than it is waited for: a call under way keeps its run open
        loop.explorer.hold.set()
        assert (await call).status_code == 200

        async def dropped() -> bool:
            return bool((await replay(loop))["state"] == "dropped")

        await until(dropped)
        assert "runs.replay_timeout" in (await replay(loop))["runs"][0]["error"]
        assert 'slipstream_replays_total{state="expired"} 1.0' in (await loop.client.get("/metrics")).text


@ON_BOTH_STORES
async def test_feedback_on_an_answer_is_the_runs_reward(run_loop: RunLoop) -> None:
    async with run_loop(rewards={"calculators": [{"constant": {"value": 0.5}}], "grace": "1h"}) as loop:
        for run in (await open_runs(loop, runs=3))["runs"]:
            async with sdk(loop, run) as client:
                answers = [await ask(client), await ask(client)]
            if run["run_id"] == 0:  # before its end, each answer named
                receipt = await _posted(loop, {"msg_ids": answers, "reward": 0.125})
            await finish(loop, run_id=run["run_id"], **({"reward": 0.25} if run["run_id"] == 2 else {}))
            if run["run_id"] == 1:  # after it, in the place of the calculators'
                await _posted(loop, {"msg_id": answers[0], "thumbs": "up"})
            if run["run_id"] == 2:  # a later word than the agent's own
                await _posted(loop, {"msg_id": answers[1], "reward": 0.75})
        assert [target["state"] for target in receipt["targets"]] == ["matched", "matched"]
        await _scored(loop, 1, 1.0)
        await _scored(loop, 2, 0.75)
        seen = (await replay(loop))["runs"][0]
        assert seen["state"] == "answered", "the grace goes on: the feedback came before there was an end to wait for"


async def test_a_mark_has_runs_scored_again_but_for_the_agents_own_reward(run_loop: RunLoop) -> None:
    async with run_loop(rewards={"calculators": [{"python": "replaying:about_replay"}]}) as loop:
        for run in (await open_runs(loop, runs=2, metadata={"tool": "of the run"}))["runs"]:
            async with sdk(loop, run) as client:
                await ask(client)
            await finish(loop, run_id=run["run_id"], **({"reward": 1} if run["run_id"] else {}))
        await until(lambda: loop.ready(2))
        assert (await replay(loop))["runs"][0]["breakdown"]["python.metadata"] == 0
        marked = await loop.client.post("/marks", json={"task_id": "t", "metadata": {"reference": "42"}})
        assert marked.json()["state"] == "applied"

        async def scored_again() -> bool:
            return bool(((await replay(loop))["runs"][0]["breakdown"] or {}).get("python.metadata") == 1)

        await until(scored_again)
        assert (await replay(loop))["runs"][1]["reward"] == 1
        task = await loop.task("t")
        assert task is not None
        await until(lambda: _decided(loop))


@ON_BOTH_STORES
async def test_a_task_that_is_replayed_first_gets_no_shadow_calls(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        await loop.client.post("/marks", json={"task_id": "t", "labels": ["early"], "metadata": {"reference": "42"}})
        await open_runs(loop, metadata={"more": 1})
        answer = await loop.chat("hello", {"x-slipstream-task-id": "t", "x-slipstream-session-id": "s"})

        async def captured() -> Any:
            task = await loop.task("t")
            return task if task and task["calls"] and task["decided"] else None

        task = await until(captured)
        assert (task["session_id"], task["selected"], task["labels"]) == ("s", True, ["early"])
        assert task["metadata"] == {"reference": "42", "more": 1}
        assert [group["group_id"] for group in task["groups"]] == ["t.replay"]
        assert loop.explorer.chats == []
        receipt = await _posted(loop, {"session_id": "s", "thumbs": "up"})
        assert receipt["targets"][0]["matched_to"] == "production"
        assert answer["id"] == task["calls"][0]["msg_id"]


async def test_what_is_stored_is_redacted(run_loop: RunLoop, store_url: str) -> None:
    async with run_loop() as loop:
        key = "sk-" + "a1B2" * 10
        [run] = (await open_runs(loop, metadata={"note": key}))["runs"]
        async with sdk(loop, run) as client:
            await ask(client, f"my key is {key}")
        assert key in loop.explorer.chats[0]["messages"][0]["content"], "the policy gets it as it is"
        await finish(loop, error=f"it said {key}", metadata={"note": key})
    [(request,)] = await stored_rows(store_url, "SELECT request FROM run_calls")
    told = str(unpack(request)) + str(await stored_rows(store_url, "SELECT ending, reason FROM runs"))
    told += str(await stored_rows(store_url, "SELECT meta FROM tasks"))
    assert key not in told
    assert told.count("[redacted:api_key]") >= 4


async def test_with_trinitys_history_at_hand_a_lost_replay_is_delivered_again(
    run_loop: RunLoop, tmp_path: Path
) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/history.db"
    with contextlib.closing(sqlite3.connect(tmp_path / "history.db", isolation_level=None)) as history:
        history.execute("CREATE TABLE proxy_history (msg_id TEXT, consumed INTEGER)")
        async with run_loop(explorer={"history_url": url}) as loop:
            [run] = (await open_runs(loop))["runs"]
            async with sdk(loop, run) as client:
                answers = [await ask(client), await ask(client)]
            history.executemany("INSERT INTO proxy_history VALUES (?, 1)", [(answer,) for answer in answers])
            await finish(loop, reward=1)
            loop.explorer.faults["/commit"] = [500]
            assert (await loop.commit())["lost"] == 0
            assert history.execute("SELECT consumed FROM proxy_history").fetchall() == [(0,), (0,)]
            loop.explorer.recorded.update(answers)  # as Trinity does with what is not consumed
            assert (await loop.commit())["experiences"] == 2
            assert (await replay(loop))["state"] == "delivered"


@ON_BOTH_STORES
async def test_what_the_explorer_lost_of_a_clients_replay_is_lost(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        async with sdk(loop, run) as client:
            await ask(client)
        await finish(loop, reward=1)
        loop.explorer.recorded.clear()
        assert await loop.commit() == {"commit": 1, "groups": 0, "experiences": 0, "run_again": 0, "lost": 1}
        assert (await replay(loop))["state"] == "lost"
        assert await loop.commit() == {"commit": None, "groups": 0, "experiences": 0, "run_again": 0, "lost": 0}
        codes = [problem["code"] for problem in (await loop.status())["problems"]]
        assert "live.groups_dropped" in codes
        await open_runs(loop)


async def _posted(loop: Loop, body: dict[str, Any]) -> dict[str, Any]:
    response = await loop.client.post("/feedback", json=body)
    assert response.status_code == 202, response.text
    receipt: dict[str, Any] = (await loop.client.get(f"/feedback/{response.json()['id']}")).json()
    return receipt


async def _scored(loop: Loop, run_id: int, reward: float) -> None:
    async def there() -> bool:
        return bool((await replay(loop))["runs"][run_id]["reward"] == reward)

    await until(there)


async def _decided(loop: Loop) -> bool:
    task = await loop.task("t")
    return bool(task and task["decided"] and task["reason"] == "replayed by its client")


async def test_a_restart_drops_what_it_may_have_cut_and_keeps_what_had_not_begun(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        group = await open_runs(loop, runs=3)
        for run_id in (0, 1):
            async with sdk(loop, group["runs"][run_id]) as client:
                await ask(client)
        await finish(loop, run_id=0, reward=1)
    async with run_loop() as loop:
        runs = (await replay(loop))["runs"]
        assert [run["state"] for run in runs] == ["scored", "failed", "open"]
        assert "started again" in runs[1]["error"]


@ON_BOTH_STORES
async def test_a_restart_drops_a_run_whose_first_call_it_cut(store_url: str) -> None:
    explorer = ScriptedExplorer()
    explorer.hold.clear()
    async with serving(explorer.app()) as url:
        async with training_side(store_url, url) as sidecar:
            await sidecar.replays.open("t", 2, [], {}, None)
            call = asyncio.create_task(sidecar.replays.answer("t", 0, _connected(), _unheard))
            await until(lambda: explorer.chats)
            call.cancel()  # as the end of the process does
            await asyncio.wait([call])
        explorer.hold.set()
        async with training_side(store_url, url) as sidecar:
            with pytest.raises(RequestError, match="started again"):
                await sidecar.replays.admit("t", 0)
            assert (await sidecar.replays.admit("t", 1)).state == "open"


@ON_BOTH_STORES
async def test_any_number_of_planned_replays_ends(store_url: str) -> None:
    database = Database(store_url)
    await database.open()
    async with database.write() as session:
        for number in range(33):  # thousand: more than PostgreSQL takes as parameters of one statement
            await note_task(session, f"t{number}", None, [], {}, 1.0)
            await open_runs_of(session, f"t{number}", 1000, 1.0, state="pending", by_client=False, due_at=1.0)
    await database.close()
    async with training_side(store_url, "http://127.0.0.1:9"):
        pass
    assert await stored_rows(store_url, "SELECT state, count(*) FROM groups GROUP BY state") == [("dropped", 33)]


async def test_planned_replays_end_with_the_mode_that_would_begin_them(run_loop: RunLoop) -> None:
    webhook = {"url": "http://127.0.0.1:9", "secret": "s", "max_attempts": 99, "allow_private": True}
    async with run_loop(runs={"mode": "webhook", "webhook": webhook}) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})

        async def tried() -> bool:
            return "slipstream_run_retries_total 0.0" not in (await loop.client.get("/metrics")).text

        await until(tried)
    async with run_loop() as loop:
        seen = await replay(loop)
        assert (seen["state"], seen["runs"][0]["state"]) == ("dropped", "failed")
