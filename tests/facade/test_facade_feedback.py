"""Rewards through the facade: checked, stored, the first one counts, and groups go out whole in one commit."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from facade_client import ask, commit, reward, run, seen, trained
from loops import RunLoop
from scripted import ScriptedExplorer
from serving import until
from starlette.requests import Request
from starlette.responses import Response
from stores import ON_BOTH_STORES

from slipstream.store import facade
from slipstream.store.database import Database
from slipstream.store.facade import NewAnswer, Reward
from slipstream.store.states import FacadeGroupState
from slipstream.store.tables.facade import FacadeAnswerRow, FacadeGroupRow
from slipstream.tenants import DEFAULT

FEEDBACK = "/explorer/feedback"


WRONG_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"reward": float("nan")}, "reward"),
    ({"reward": float("inf")}, "reward"),
    ({"reward": True}, "reward"),
    ({"reward": "1"}, "reward"),
    ({"reward": None}, "reward"),
    ({"reward": 1.01}, "reward"),
    ({"reward": -1}, "reward"),
    ({"msg_ids": []}, "msg_ids"),
    ({"msg_ids": "a"}, "msg_ids"),
    ({"msg_ids": None}, "msg_ids"),
    ({"msg_ids": [""]}, "msg_ids.0"),
    ({"msg_ids": ["a", 7]}, "msg_ids.1"),
    ({"msg_ids": ["x" * 257]}, "msg_ids.0"),
    ({"task_id": 7}, "task_id"),
    ({"task_id": "x" * 65}, "task_id"),
    ({"task_id": "t\0"}, "task_id"),  # PostgreSQL takes none: Trinity's every try of this delivery would fail
    ({"run_id": 1.5}, "run_id"),
    ({"run_id": True}, "run_id"),
    ({"run_id": -1}, "run_id"),
    ({"run_id": 2**31}, "run_id"),
    ({"run_id": ""}, "run_id"),
    ({"run_id": [0]}, "run_id"),
]


@pytest.mark.slow
async def test_a_wrong_field_is_named_and_nothing_is_stored(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        for changes, param in WRONG_FIELDS:
            msg_id = await ask(loop)
            rewarded = (await seen(loop))["rewarded"]
            body = {"msg_ids": [msg_id], "reward": 1.0, "task_id": "t", "run_id": 0, **changes}
            response = await loop.client.post(FEEDBACK, content=json.dumps(body))
            assert response.status_code == 422, changes
            error = response.json()["error"]
            assert error["param"] == param, changes
            assert error["message"].startswith(param), changes
            assert (await seen(loop))["rewarded"] == rewarded, changes
            accepted = await reward(loop, msg_id, task_id=None, run_id=None, anything="else")
            assert accepted["accepted"] == 1, changes


async def test_what_is_no_json_is_a_400(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        for content in (b"", b"{", b'{"msg_ids": ["\xff"], "reward": 1}', b"msg_ids=a&reward=1"):
            response = await loop.client.post(FEEDBACK, content=content)
            assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_json"), content


async def test_feedback_without_end_is_refused(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        response = await loop.client.post(FEEDBACK, content=b'{"msg_ids": ["' + b"x" * 2_000_000)
        assert response.status_code == 413


async def test_a_client_that_leaves_amid_its_feedback_is_no_fault(
    run_loop: RunLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_loop() as loop:
        _, writer = await asyncio.open_connection(*loop.url.removeprefix("http://").split(":"))
        writer.write(f"POST {FEEDBACK} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{{".encode())
        assert (await loop.client.get("/status")).status_code == 200  # the request before it has begun by then
        writer.close()
        await writer.wait_closed()
        assert (await loop.client.get("/status")).status_code == 200
    assert "Exception in ASGI application" not in caplog.text


async def test_curl_without_a_content_type_is_understood(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        msg_id = await ask(loop)
        headers = {"content-type": "application/x-www-form-urlencoded"}
        body = json.dumps({"msg_ids": [msg_id], "reward": 1})
        assert (await loop.client.post(FEEDBACK, content=body, headers=headers)).json() == {"status": "success"}
        assert (await seen(loop))["rewarded"] == 1


async def test_the_first_reward_wins_and_a_repeated_one_has_no_effect(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        msg_id = await ask(loop)
        assert (await reward(loop, msg_id, msg_id, reward=0.25, task_id="t"))["accepted"] == 1
        assert (await reward(loop, msg_id, reward=1.0, task_id="t"))["repeated"] == 1
        assert (await reward(loop, msg_id, reward=1.0, task_id="another"))["repeated"] == 1
        await commit(loop)
        assert (await reward(loop, msg_id, reward=1.0, task_id="t"))["repeated"] == 1
        assert (await commit(loop))["experiences"] == 0
        assert [[e["reward"] for e in c] for c in loop.explorer.committed] == [[0.25]]


async def test_of_feedback_posted_many_times_at_once_one_has_effect(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        ids = [await ask(loop) for _ in range(5)]
        said = await asyncio.gather(*(reward(loop, *ids, reward=i / 20, task_id="t", run_id=0) for i in range(20)))
        assert sorted(answer["accepted"] for answer in said) == [0] * 19 + [5]
        assert (await commit(loop))["experiences"] == 5
        [committed] = loop.explorer.committed
        assert len({e["reward"] for e in committed}) == 1
        assert len(committed) == 5


async def test_unknown_answers_are_named_and_counted(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        msg_id = await ask(loop)
        assert await reward(loop, "nobody's", msg_id) == {
            "accepted": 1, "repeated": 0, "rejected": [], "unknown": ["nobody's"],
        }  # fmt: skip
        text = (await loop.client.get("/metrics")).text
        assert 'slipstream_facade_feedback_total{result="unknown"} 1.0' in text


@pytest.mark.slow
async def test_run_ids_in_text_become_integers(run_loop: RunLoop) -> None:
    names = ("1", "first", "0", 7, None, "1", 1, "99999999999", "last")
    async with run_loop(facade={"group_size": 9, "group_idle": 0}) as loop:
        answers = [await run(loop, run_id=name) for name in names]
        await commit(loop)
        numbers = {e["msg_id"]: e["run_id"] for e in loop.explorer.committed[0]}
        assert [numbers[msg_id] for msg_id in answers] == [1, 0, 2, 7, 3, 1, 1, 4, 5]


async def test_a_group_waits_until_it_is_whole_and_goes_out_in_one_commit(run_loop: RunLoop) -> None:
    async with run_loop(runs={"repeat_time": 3}) as loop:
        await run(loop, run_id="0")
        await run(loop, run_id="1")
        counts = await commit(loop)
        assert (counts["experiences"], counts["waiting"]) == (0, 2)
        assert (await loop.commit())["experiences"] == 0
        assert loop.explorer.step == 0
        await run(loop, run_id="2")
        counts = await commit(loop)
        assert (counts["experiences"], counts["waiting"]) == (3, 0)
        assert trained(loop) == [[("t", 0), ("t", 1), ("t", 2)]]
        assert (await seen(loop))["groups"] == {"delivered": 1}


async def test_runs_that_come_after_their_group_went_out_are_a_group_of_their_own(run_loop: RunLoop) -> None:
    async with run_loop(facade={"group_size": 2}) as loop:
        for _ in range(2):
            for run_id in ("0", "1"):
                await run(loop, "x" * 64, run_id=run_id)
            await commit(loop)
        first, second = (commit[0][0] for commit in trained(loop))
        assert first == "x" * 64
        assert second is not None
        assert second.endswith("~1")
        assert len(second) == 64
        assert [len(commit) for commit in trained(loop)] == [2, 2]


@ON_BOTH_STORES
async def test_a_task_that_had_many_groups_gets_the_next_name(database: Database) -> None:
    async with database.write() as session:
        for generation in range(150):
            name = f"t~{generation}" if generation else "t"
            session.add(FacadeGroupRow(id=name, task_id="t", state=FacadeGroupState.DELIVERED, updated_at=1.0))
        await facade.add_answer(session, NewAnswer("a", DEFAULT, 1, None, 0), 2.0)
        given = Reward(name="unused", msg_ids=("a",), reward=1.0, task_id="t", run_key=None)
        await facade.add_reward(session, given, 8, 3.0)
    async with database.read() as session:
        answer = await session.get_one(FacadeAnswerRow, "a")
        assert answer.group_id == "t~150"


async def test_a_group_that_nothing_comes_for_any_more_goes_out_as_it_is(run_loop: RunLoop) -> None:
    async with run_loop(facade={"group_size": 3, "group_idle": "300ms"}) as loop:
        await run(loop, run_id="0")
        await run(loop, run_id="1")
        assert (await commit(loop))["experiences"] == 0

        async def delivered() -> bool:
            return bool((await commit(loop))["experiences"] == 2)

        await until(delivered)


async def test_one_run_where_several_are_compared_is_dropped_in_sight(run_loop: RunLoop) -> None:
    async with run_loop(facade={"group_size": 2, "group_idle": 0}) as loop:
        await run(loop, run_id="0")
        counts = await commit(loop)
        assert (counts["experiences"], counts["waiting"]) == (0, 0)
        facade = await seen(loop)
        assert facade["groups"] == {"dropped": 1}
        [failed] = facade["failed_groups"]
        assert (failed["group_id"], failed["state"]) == ("t", "dropped")
        assert "one run" in failed["reason"]
        assert 'slipstream_groups_total{outcome="dropped"} 1.0' in (await loop.client.get("/metrics")).text
        assert loop.explorer.committed == []


async def test_without_a_task_id_each_feedback_is_a_group_of_its_own(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        for _ in range(2):
            await run(loop, None)
        await commit(loop)
        names = {task_id for task_id, _ in trained(loop)[0]}
        assert len(names) == 2
        assert None not in names


async def test_all_choices_of_an_answer_are_counted(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        msg_id = await ask(loop, n=3)
        other = await ask(loop)
        await reward(loop, msg_id, other, task_id="t")
        assert (await loop.status())["next_commit"]["experiences_ready"] == 4
        assert (await commit(loop))["experiences"] == 4
        assert (await seen(loop))["groups"] == {"delivered": 1}


async def test_choices_hide_no_answer_that_the_explorer_has_forgotten(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        known = await ask(loop, n=2)
        await reward(loop, known, task_id="t", run_id=0)
        forgotten = await ask(loop)
        await reward(loop, forgotten, task_id="t", run_id=1)
        loop.explorer.recorded.remove(forgotten)
        assert (await commit(loop))["experiences"] == 0
        assert "a part" in (await seen(loop))["failed_groups"][0]["reason"]


async def test_the_sidecars_own_groups_and_the_facades_go_out_in_one_commit(run_loop: RunLoop) -> None:
    async with run_loop(runs={"repeat_time": 2}) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        await until(lambda: loop.ready(2))
        for run_id in ("0", "1"):
            await run(loop, "f", run_id=run_id)
        assert (await loop.commit())["experiences"] == 4
        assert trained(loop) == [[("f", 0), ("f", 1), ("t.0", 0), ("t.0", 1)]]


@pytest.mark.slow
async def test_groups_of_one_name_never_meet_in_one_commit(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        await run(loop, "t.0")
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        await until(lambda: loop.ready(2))
        await commit(loop)
        await commit(loop)
        await run(loop, "t.0")
        await commit(loop)
        assert trained(loop) == [[("t.0", 0)], [("t.0", 0)], [("t.0~1", 0)]]


@pytest.mark.slow
async def test_many_waiting_experiences_are_committed_early(run_loop: RunLoop) -> None:
    async with run_loop(commit={"interval": "1h", "max_pending": 3}) as loop:
        for _ in range(3):
            await run(loop)
        await until(lambda: loop.explorer.committed)


@pytest.mark.slow
async def test_a_failed_commit_loses_groups_in_sight(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        await run(loop)
        loop.explorer.faults["/commit"] = [500]
        counts = await commit(loop)
        assert (counts["experiences"], counts["lost"], counts["run_again"]) == (0, 1, 0)
        [failed] = (await seen(loop))["failed_groups"]
        assert failed["state"] == "lost"
        assert "failed at the commit" in failed["reason"]
        assert 'slipstream_groups_total{outcome="lost"} 1.0' in (await loop.client.get("/metrics")).text
        await run(loop)
        assert (await commit(loop))["experiences"] == 1
        assert trained(loop) == [[("t~1", 0)]]


async def test_a_commit_that_failed_after_it_was_carried_out_is_delivered(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        await run(loop)
        carry_out = loop.explorer._commit

        async def fails_behind_it(request: Request) -> Response:
            await carry_out(request)  # Trinity's monitor fails: the rows are in the buffer by then
            return Response("Internal Server Error", 500)

        loop.explorer.commit_route = fails_behind_it
        counts = await commit(loop)
        assert (counts["experiences"], counts["lost"]) == (1, 0)
        assert (await seen(loop))["groups"] == {"delivered": 1}


@pytest.mark.slow
async def test_a_client_may_say_how_many_runs_make_its_group(run_loop: RunLoop) -> None:
    async with run_loop(facade={"group_size": 1, "group_idle": 0}) as loop:
        for run_id in range(3):
            await run(loop, "a", run_id=run_id, group_size=3)
            assert (await loop.status())["next_commit"]["experiences_ready"] == (3 if run_id == 2 else 0)
        assert (await commit(loop))["experiences"] == 3
        await run(loop, "b", run_id=0, group_size=2)
        assert (await commit(loop))["experiences"] == 0, "one run has nothing to be compared with"
        [failed] = (await seen(loop))["failed_groups"]
        assert failed["reason"] == "one run came, of 2 that are compared"
        response = await loop.client.post("/explorer/feedback", json={"msg_ids": ["m"], "reward": 1, "group_size": 0})
        assert (response.status_code, response.json()["error"]["param"]) == (422, "group_size")


async def test_an_explorer_that_is_away_delays_the_commit_and_loses_nothing(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        await run(loop)
        loop.explorer.faults["/feedback"] = [503]
        response = await loop.client.post("/explorer/commit")
        assert (response.status_code, response.json()["error"]["code"]) == (503, "explorer_unavailable")
        assert (await commit(loop))["experiences"] == 1


async def test_a_restart_between_feedback_and_commit_is_seen(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        await run(loop)
        loop.explorer.faults["/commit"] = [503]
        loop.explorer.keep_queue_on_fault = True
        assert (await loop.client.post("/explorer/commit")).status_code == 503
        loop.explorer.boot(forget=False)
        assert (await commit(loop))["lost"] == 1
        assert "restarted" in (await seen(loop))["failed_groups"][0]["reason"]


async def test_answers_that_the_explorer_has_forgotten_are_lost(run_loop: RunLoop) -> None:
    async with run_loop(facade={"group_size": 2}) as loop:
        forgotten = await run(loop, "a", run_id=0)
        await run(loop, "a", run_id=1)
        await run(loop, "b", run_id=0)
        partly = await run(loop, "b", run_id=1)
        loop.explorer.recorded -= {forgotten, partly}
        counts = await commit(loop)
        assert (counts["experiences"], counts["lost"]) == (0, 1)
        states = {group["group_id"]: group["state"] for group in (await seen(loop))["failed_groups"]}
        assert states == {"a": "lost", "b": "dropped"}


async def test_a_restarted_sidecar_delivers_what_was_acknowledged(run_loop: RunLoop) -> None:
    explorer = ScriptedExplorer()
    quiet = {"interval": "1h", "on_shutdown": False}
    async with run_loop(explorer, runs={"repeat_time": 2}, commit=quiet) as loop:
        await run(loop, run_id="0")
    async with run_loop(explorer, runs={"repeat_time": 2}, commit=quiet) as loop:
        await run(loop, run_id="1")
        assert (await commit(loop))["experiences"] == 2
        assert trained(loop) == [[("t", 0), ("t", 1)]]


@pytest.mark.slow
async def test_retention_keeps_what_is_rewarded_until_it_is_counted_as_dropped(
    run_loop: RunLoop, tmp_path: Path
) -> None:
    async with run_loop(capture={"retention": "300ms"}, facade={"group_size": 2}) as loop:
        await run(loop, run_id="0")
        await ask(loop)

        async def counted() -> bool:
            text = (await loop.client.get("/metrics")).text
            return 'slipstream_groups_total{outcome="dropped"} 1.0' in text

        await until(counted)

        async def empty() -> bool:
            facade = await seen(loop)
            return facade["groups"] == {} and facade["answers"] == {"whole": 0, "not_whole": 0}

        await until(empty)
