"""Agent replays: an agent run again at its run's address, and what comes of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from loops import RunLoop
from replaying import BODY, CHAT, ask, finish, open_runs, posted, replay, sdk
from serving import until
from stores import ON_BOTH_STORES, stored_rows

from slipstream.store.bodies import unpacked_text


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


@pytest.mark.parametrize("runs", [4, pytest.param(50, marks=pytest.mark.slow)])
async def test_runs_at_the_same_time_keep_apart_and_their_calls_in_order(run_loop: RunLoop, runs: int) -> None:
    calls = 4
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
        assert len({one["msg_id"] for one in loop.explorer.trained}) == runs * calls


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
        receipt = await posted(loop, {"session_id": "s", "thumbs": "up"})
        assert receipt["targets"][0]["matched_to"] == "production"
        assert answer["id"] == task["calls"][0]["msg_id"]


async def test_what_is_stored_is_redacted(run_loop: RunLoop, store_url: str) -> None:
    async with run_loop(explorer={"redact": False}) as loop:
        key = "sk-" + "a1B2" * 10
        [run] = (await open_runs(loop, metadata={"note": key}))["runs"]
        async with sdk(loop, run) as client:
            await ask(client, f"my key is {key}")
        assert key in loop.explorer.chats[0]["messages"][0]["content"], "the policy gets it as it is"
        await finish(loop, error=f"it said {key}", metadata={"note": key})
    [(body,)] = await stored_rows(store_url, "SELECT body FROM segments")
    assert await stored_rows(store_url, "SELECT request FROM run_calls") == [(b"",)]
    told = str(unpacked_text(body)) + str(await stored_rows(store_url, "SELECT ending, reason FROM runs"))
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
