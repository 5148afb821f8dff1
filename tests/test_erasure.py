"""`DELETE /data`: everything about a session goes, its bytes too, and what cannot be taken back is told."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from facade_client import run
from loops import Loop, RunLoop
from on_disk import holds
from prometheus_client import CollectorRegistry
from scripted import ScriptedExplorer, production_app
from serving import serving, until
from sqlalchemy import select, text
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from stores import ON_BOTH_STORES, stored_rows
from structlog.testing import capture_logs

from slipstream.capture.retention import Retention
from slipstream.metrics import Metrics
from slipstream.store import erasure, tasks
from slipstream.store.database import Database
from slipstream.store.tables.capture import TaskRow
from slipstream.store.tables.feedback import FeedbackRow, FeedbackTargetRow
from slipstream.store.tables.runs import GroupRow, RunCallRow, RunRow
from slipstream.tenants import qualified

MARKER = "3f2c77-otter"
SESSION = "session-3f2c77-otter"

TABLES = (
    "tasks",
    "calls",
    "segments",
    "groups",
    "runs",
    "run_calls",
    "feedback",
    "feedback_targets",
    "marks",
    "captured",
)


async def conversation(loop: Loop, session: str = SESSION, task_id: str = "t", said: str = MARKER) -> dict[str, Any]:
    """A call, feedback on it, a mark, and a run of its agent."""
    headers = {
        "x-slipstream-session-id": session,
        "x-slipstream-task-id": task_id,
        "x-slipstream-metadata": json.dumps({"name": said}),
    }
    answer = await loop.chat(f"I am {said}", headers)
    await until(lambda: loop.task(task_id))
    for about in ({"session_id": session}, {"task_id": task_id}, {"msg_id": answer["id"]}):
        body = {**about, "thumbs": "up", "comment": f"thanks, says {said}"}
        assert (await loop.client.post("/feedback", json=body)).status_code == 202
    mark = {"msg_id": answer["id"], "metadata": {"reference": said}}
    assert (await loop.client.post("/marks", json=mark)).status_code == 202
    return answer


async def replayed(loop: Loop, session: str, task_id: str, said: str = MARKER) -> None:
    """A run of two agents that end."""
    opened = {"runs": 2, "session_id": session, "metadata": {"name": said}}
    assert (await loop.client.post(f"/runs/{task_id}", json=opened)).status_code < 300
    chat = {"model": "policy", "messages": [{"role": "user", "content": f"I am {said}"}]}
    for run_id in (0, 1):
        asked = await loop.client.post(f"/runs/{task_id}/{run_id}/v1/chat/completions", json=chat)
        assert asked.status_code == 200, asked.text
        end = {"reward": run_id, "metadata": {"name": said}}
        assert (await loop.client.post(f"/runs/{task_id}/{run_id}/finish", json=end)).status_code == 200


async def erased(loop: Loop, **names: str) -> dict[str, Any]:
    response = await loop.client.delete("/data", params=names)
    assert response.status_code == 200, response.text
    told: dict[str, Any] = response.json()
    return told


async def counts(store_url: str) -> dict[str, int]:
    return {table: (await stored_rows(store_url, f"SELECT count(*) FROM {table}"))[0][0] for table in TABLES}


@ON_BOTH_STORES
async def test_everything_about_a_session_is_deleted_and_others_stay(run_loop: RunLoop, store_url: str) -> None:
    async with run_loop(runs={"repeat_time": 2}) as loop:
        await conversation(loop, "another", "another", "somebody")
        await until(lambda: loop.ready(2))
        before = await counts(store_url)
        await conversation(loop)
        await replayed(loop, SESSION, "replay")
        await until(lambda: loop.ready(6))
        other = await loop.client.post(
            "/feedback", json={"msg_ids": ["prod-0", "prod-1"], "reward": 1, "comment": f"both, says {MARKER}"}
        )
        told = await erased(loop, session_id=SESSION)
        assert told["deleted"] == {
            "tasks": 2, "calls": 1, "groups": 2, "runs": 4, "feedback": 4, "marks": 1, "facade_groups": 0,
            "exchanges": 0, "preferences": 0,
        }  # fmt: skip
        assert told["pending"] == {"groups": 0, "exchanges": 0, "datasets": 0}
        assert told["explorer"]["delivered"] == {"experiences": 0, "commits": [], "versions": [], "groups": []}
        assert len(told["explorer"]["recorded"]) == 4, "what the policy answered, and nobody will be rewarded for"
        assert await loop.task("t") is None
        after = await counts(store_url)
        assert after == {
            **before,
            "feedback": before["feedback"] + 1,
            "feedback_targets": before["feedback_targets"] + 1,
        }
        targets = (await loop.client.get(f"/feedback/{other.json()['id']}")).json()["targets"]
        assert [target["msg_id"] for target in targets] == ["prod-0"], "what is said of somebody else's answer stays"
        comments = await stored_rows(
            store_url, "SELECT comment FROM feedback WHERE comment LIKE :like", like=f"%{MARKER}%"
        )
        assert comments == [], "without its words"
        assert (await loop.commit())["experiences"] == 2, "the other session's"
        assert MARKER not in str(loop.explorer.committed)


@ON_BOTH_STORES
async def test_a_conversation_of_many_turns_is_deleted_and_its_branch_in_another_session_stays(
    run_loop: RunLoop, store_url: str, tmp_path: Path
) -> None:
    async with run_loop(selection={"explicit_mark": {}}) as loop:
        messages = [{"role": "system", "content": "be brief"}] * 2 + [{"role": "user", "content": "hello"}]
        for turn in range(4):
            answer = await loop.chat(list(messages))
            messages += [answer["choices"][0]["message"], {"role": "user", "content": f"I am {MARKER}, {turn}"}]
        branch = await loop.chat([*messages[:4], {"role": "user", "content": "I am somebody"}])
        call = await until(lambda: _call(loop, branch["id"]))
        first = await _call(loop, "prod-0")
        assert first is not None
        assert call["session_id"] != first["session_id"], "it was continued before"
        assert (await counts(store_url))["segments"] == 5
        assert (await erased(loop, session_id=first["session_id"]))["deleted"]["calls"] == 4
        assert (await counts(store_url))["segments"] == 2, "the beginning is the branch's too"
        assert (await _call(loop, branch["id"]) or {})["request"] == call["request"]
        assert call["request"]["messages"][:3] == messages[:3]
        assert not holds(tmp_path, MARKER)
        await erased(loop, session_id=call["session_id"])
        assert (await counts(store_url))["segments"] == 0


async def _call(loop: Loop, msg_id: str) -> dict[str, Any] | None:
    answer = await loop.client.get(f"/calls/{msg_id}")
    return answer.json() if answer.status_code == 200 else None


@pytest.mark.slow
async def test_no_byte_is_left_in_the_files(run_loop: RunLoop, tmp_path: Path) -> None:
    async with run_loop(runs={"repeat_time": 2}) as loop:
        for number in range(10):  # so that pages are shared with others, split and merged
            await conversation(loop, "another", f"another-{number}", f"somebody {number}")
            await conversation(loop, SESSION, f"t-{number}", f"{MARKER} {number}")
        await replayed(loop, SESSION, "replay")
        await loop.chat(f"I am {MARKER} " * 5000, {"x-slipstream-session-id": SESSION, "x-slipstream-task-id": "long"})
        await until(lambda: loop.ready(44))
        assert holds(tmp_path, MARKER)
        told = await erased(loop, session_id=SESSION)
        assert told["deleted"]["tasks"] == 12
        assert holds(tmp_path, "somebody 9")
        assert not holds(tmp_path, f"I am {MARKER}"), "bodies"
        assert not holds(tmp_path, f"thanks, says {MARKER}"), "comments"
        assert not holds(tmp_path, f'"{MARKER} 1'), "metadata"


@ON_BOTH_STORES
async def test_what_was_delivered_is_told_now_and_when_asked_again(run_loop: RunLoop) -> None:
    async with run_loop(runs={"repeat_time": 2}) as loop:
        await conversation(loop)
        await until(lambda: loop.ready(2))
        commit = (await loop.commit())["commit"]
        loop.explorer.version = 3
        await until(lambda: _version(loop, 3))
        await loop.chat("and another thing", {"x-slipstream-session-id": SESSION, "x-slipstream-task-id": "u"})
        await until(lambda: loop.ready(2))
        first = await erased(loop, session_id=SESSION)
        delivered = first["explorer"]["delivered"]
        [told] = loop.explorer.committed
        assert delivered["experiences"] == 2
        assert (delivered["commits"], delivered["versions"]) == ([commit], [3])
        assert delivered["groups"] == [
            {"group_id": "t.0", "task_id": "t", "commit": commit, "msg_ids": [one["msg_id"] for one in told]}
        ]
        assert len(first["explorer"]["recorded"]) == 2
        again = await erased(loop, session_id=SESSION)
        assert set(again["deleted"].values()) == {0}
        assert again["explorer"] == first["explorer"]
        assert (await loop.commit())["experiences"] == 0, "what was ready is not delivered any more"
        metrics = (await loop.client.get("/metrics")).text
        assert 'slipstream_groups_total{outcome="erased"} 1.0' in metrics


@pytest.mark.slow
@ON_BOTH_STORES
async def test_what_a_commit_may_have_taken_is_told_too(run_loop: RunLoop) -> None:
    """The commit was carried out, its answer was lost, and so was the process that could have told."""
    async with run_loop(runs={"repeat_time": 2}) as loop:
        await conversation(loop)
        await until(lambda: loop.ready(2))
        commit = loop.explorer.commit_route

        async def carried_out_and_gone(request: Request) -> Response:
            await commit(request)
            loop.explorer.boot(forget=False)
            return Response(status_code=503)

        loop.explorer.commit_route = carried_out_and_gone
        assert (await loop.client.post("/commit")).status_code == 503
        loop.explorer.commit_route = commit
        assert (await loop.commit())["run_again"] == 1
        told = (await erased(loop, session_id=SESSION))["explorer"]
        [taken] = loop.explorer.committed
        [group] = told["uncertain"]
        assert (group["group_id"], group["commit"], told["delivered"]["groups"]) == ("t.0", 1, [])
        assert sorted(group["msg_ids"]) == sorted(one["msg_id"] for one in taken)
        assert not {one["msg_id"] for one in taken} & set(told["recorded"])


async def _held_commit(loop: Loop, explorer: ScriptedExplorer) -> tuple[asyncio.Task[dict[str, Any]], asyncio.Event]:
    """A commit that the Explorer was asked for, and the event at which it carries it out."""
    asked, go_on = asyncio.Event(), asyncio.Event()
    commit = explorer.commit_route

    async def slow(request: Any) -> Any:
        asked.set()
        await go_on.wait()
        return await commit(request)

    explorer.commit_route = slow
    committing = asyncio.create_task(loop.commit())
    await asked.wait()
    return committing, go_on


async def _version(loop: Loop, version: int) -> bool:
    return bool((await loop.status())["policy"]["version"] == version)


@pytest.mark.slow
@ON_BOTH_STORES
async def test_a_group_that_is_being_delivered_goes_out_whole_and_is_deleted_then(run_loop: RunLoop) -> None:
    explorer = ScriptedExplorer()
    async with run_loop(explorer, runs={"repeat_time": 2}) as loop:
        await conversation(loop)
        await until(lambda: loop.ready(2))
        committing, go_on = await _held_commit(loop, explorer)
        erasing = asyncio.create_task(erased(loop, session_id=SESSION))
        await until(
            lambda: _feedback(loop, 2), what="what was said of the session is gone, and the group is waited for"
        )
        assert await loop.task("t") is not None
        go_on.set()
        assert (await committing)["experiences"] == 2
        told = await erasing
        assert told["pending"]["groups"] == 0
        assert told["explorer"]["delivered"]["experiences"] == 2
        assert await loop.task("t") is None


@pytest.mark.slow
@ON_BOTH_STORES
async def test_what_a_client_gave_and_is_being_delivered_is_deleted_then(run_loop: RunLoop, store_url: str) -> None:
    explorer = ScriptedExplorer()
    async with run_loop(explorer, selection={"explicit_mark": {}}) as loop:
        await loop.chat(f"I am {MARKER}", {"x-slipstream-session-id": SESSION, "x-slipstream-task-id": "t"})
        await until(lambda: loop.task("t"))
        given = [await run(loop, "t", run_id=number, group_size=2) for number in (0, 1)]
        committing, go_on = await _held_commit(loop, explorer)
        erasing = asyncio.create_task(erased(loop, session_id=SESSION))
        await until(lambda: stored_rows(store_url, "SELECT 1 FROM erasures WHERE pending"))
        go_on.set()
        assert (await committing)["experiences"] == 2
        told = await erasing
        assert (told["pending"]["groups"], told["deleted"]["facade_groups"]) == (0, 1)
        [group] = told["explorer"]["delivered"]["groups"]
        assert sorted(group["msg_ids"]) == sorted(given)
        assert await stored_rows(store_url, "SELECT count(*) FROM facade_answers") == [(0,)]
        assert await loop.task("t") is None


@pytest.mark.slow
@ON_BOTH_STORES
async def test_what_a_clock_that_is_ahead_wrote_is_deleted_too(run_loop: RunLoop, store_url: str) -> None:
    async with run_loop() as loop:
        await conversation(loop)
    database = Database(store_url)
    await database.open()
    async with database.write() as session:
        await session.execute(text("UPDATE tasks SET created_at = created_at + 30"))
        await session.execute(text("UPDATE feedback SET created_at = created_at + 31"))
        found = await erasure.erase(session, "session_id", SESSION, time.time())
        assert (found.rows["tasks"], found.rows["feedback"]) == (1, 3)
    await database.close()


async def _feedback(loop: Loop, count: int) -> bool:
    return sum((await loop.status())["feedback"].values()) == count


@ON_BOTH_STORES
@pytest.mark.parametrize("tenant", ["default", "acme"])
async def test_marks_and_feedback_on_the_policys_answers_go_for_every_tenant(store_url: str, tenant: str) -> None:
    database, now = Database(store_url), time.time()
    await database.open()
    async with database.write() as session:
        for whose in (tenant, "other"):
            task = TaskRow(id=qualified(whose, "t"), session_id=qualified(whose, "s"), tenant=whose)
            task.created_at = task.updated_at = now
            session.add(task)
            await session.flush()
            session.add(GroupRow(id=f"{whose}.0", task_id=task.id, updated_at=now))
            await session.flush()
            for number, msg_id in enumerate(["shadow", None]):
                session.add(RunRow(group_id=f"{whose}.0", run_id=number, msg_id=msg_id, updated_at=now))
            await session.flush()
            replay = await session.scalar(select(RunRow.id).where(RunRow.group_id == f"{whose}.0", RunRow.run_id == 1))
            assert replay is not None
            about = {"choices": 1, "request": b"", "answer": b"", "latency": 1.0, "started_at": now}
            session.add(RunCallRow(run_pk=replay, msg_id=f"replayed {whose}", **about))
            await session.flush()
            for msg_id in (qualified(whose, name) for name in ("shadow", f"replayed {whose}")):
                await tasks.add_mark(session, tasks.NewMark(msg_id, None, msg_id, [], {"said": MARKER}, 60.0), now)
                session.add(FeedbackRow(id=f"f {msg_id}", reward=1.0, comment=MARKER, created_at=now))
                await session.flush()
                session.add(FeedbackTargetRow(feedback_id=f"f {msg_id}", kind="msg_id", ref=msg_id))
        found = await erasure.erase(session, "session_id", qualified(tenant, "s"), now + 1)
    assert (found.rows["marks"], found.rows["feedback"]) == (2, 2)
    for table in ("marks", "feedback", "feedback_targets"):
        assert await stored_rows(store_url, f"SELECT count(*) FROM {table}") == [(2,)], "of the other tenant"
    await database.close()


@pytest.mark.slow
@ON_BOTH_STORES
async def test_what_a_long_delivery_holds_is_deleted_by_a_later_sweep(run_loop: RunLoop, store_url: str) -> None:
    async with run_loop(runs={"repeat_time": 2}) as loop:
        await conversation(loop)
        await until(lambda: loop.ready(2))
        await loop.commit()
    database = Database(store_url)
    await database.open()
    retention = Retention(
        database, Metrics(CollectorRegistry()), retention=86400.0, audit_retention=365 * 86400.0, clock=time.time
    )
    async with database.write() as session:
        await session.execute(text("UPDATE groups SET state = 'committing'"))  # as it was a moment ago
        found = await erasure.erase(session, "session_id", SESSION, time.time())
        assert (found.pending_groups, found.rows["tasks"]) == (1, 0)
    for state, left in (("committing", 1), ("delivered", 0)):
        async with database.write() as session:
            await session.execute(text(f"UPDATE groups SET state = '{state}'"))
        await retention.step()
        assert (await counts(store_url))["calls"] == left
    async with database.read() as session:
        assert (await erasure.told(session, "session_id", SESSION))["delivered"]["experiences"] == 2
    await database.close()


@pytest.mark.slow
async def test_runs_under_way_come_to_nothing(run_loop: RunLoop) -> None:
    async with run_loop(runs={"repeat_time": 2}) as loop:
        loop.explorer.hold.clear()
        await loop.chat(f"I am {MARKER}", {"x-slipstream-session-id": SESSION, "x-slipstream-task-id": "t"})
        await until(lambda: loop.explorer.chats)
        assert (await loop.client.post("/runs/replay", json={"runs": 1, "session_id": SESSION})).status_code < 300
        assert (await erased(loop, session_id=SESSION))["deleted"]["runs"] == 3
        loop.explorer.hold.set()
        chat = {"model": "policy", "messages": [{"role": "user", "content": "hello"}]}
        assert (await loop.client.post("/runs/replay/0/v1/chat/completions", json=chat)).status_code in (404, 410)
        await loop.chat("hello", {"x-slipstream-task-id": "later"})
        await until(lambda: loop.ready(2))
        assert (await loop.status())["runs"] == {"scored": 2}
        assert (await loop.commit())["groups"] == 1


@pytest.mark.slow
@ON_BOTH_STORES
async def test_an_answer_that_comes_after_the_deletion_is_nobody_elses(run_loop: RunLoop, store_url: str) -> None:
    """The first row that is written next could get the number of the one that was deleted."""
    explorer = Remembering()
    async with run_loop(explorer, runs={"repeat_time": 2}) as loop:
        await loop.chat("the first")  # to an Explorer that has not answered yet, runs go one by one
        await until(lambda: loop.ready(2))
        await loop.commit()
        explorer.hold.clear()
        await loop.chat(f"I am {MARKER}", {"x-slipstream-session-id": SESSION, "x-slipstream-task-id": "t"})
        await until(lambda: len(explorer.chats) == 4)
        await erased(loop, session_id=SESSION)
        deleted, explorer.hold = explorer.hold, asyncio.Event()
        await loop.chat("I am somebody", {"x-slipstream-task-id": "another"})
        await until(lambda: len(explorer.chats) == 6)
        deleted.set()
        await until(lambda: _under_way(loop, 2))
        explorer.hold.set()
        await until(lambda: loop.ready(2))
        await loop.commit()
        assert [explorer.asked[one["msg_id"]] for one in explorer.committed[1]] == ["I am somebody", "I am somebody"]
        stored = await stored_rows(store_url, "SELECT msg_id FROM runs")
        assert {explorer.asked[msg_id] for (msg_id,) in stored} == {"the first", "I am somebody"}


async def _under_way(loop: Loop, runs: int) -> bool:
    return bool((await loop.status())["runs_active"] == runs)


class Remembering(ScriptedExplorer):
    """`asked`: what each answer is to, by its msg_id."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[str, str] = {}

    def reply(self, msg_id: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked[msg_id] = body["messages"][-1]["content"]
        return super().reply(msg_id, body)


async def test_what_was_captured_before_is_not_stored_after(run_loop: RunLoop, tmp_path: Path) -> None:
    """A call that began before the deletion and ends after it; what the same user says later is captured again."""
    deleted, app = asyncio.Event(), production_app()

    async def held(scope: Scope, receive: Receive, send: Send) -> None:
        async def until_then(message: Any) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                await deleted.wait()
            await send(message)

        await app(scope, receive, until_then)

    async with serving(held) as url, run_loop(production={"base_url": f"{url}/v1"}) as loop:
        headers = {"x-slipstream-session-id": SESSION, "x-slipstream-task-id": "before"}
        body = {"model": "prod", "messages": [{"role": "user", "content": f"I am {MARKER}"}], "stream": True}
        async with loop.client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
            assert response.status_code == 200
            assert (await erased(loop, session_id=SESSION))["deleted"]["tasks"] == 0
            deleted.set()
            await response.aread()
        await loop.chat("I am back", {"x-slipstream-session-id": SESSION, "x-slipstream-task-id": "after"})
        await until(lambda: loop.task("after"))
        assert await loop.task("before") is None
        assert (await erased(loop, task_id="after"))["deleted"]["calls"] == 1
        assert not holds(tmp_path, f"I am {MARKER}")


@pytest.mark.slow
async def test_what_was_said_of_an_answer_that_is_not_stored_goes_with_it(run_loop: RunLoop, tmp_path: Path) -> None:
    asked, go_on, app = asyncio.Event(), asyncio.Event(), production_app()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            asked.set()
            await go_on.wait()
        await app(scope, receive, send)

    async with serving(slow) as url, run_loop(production={"base_url": f"{url}/v1"}) as loop:
        headers = {"x-slipstream-session-id": SESSION, "x-slipstream-task-id": "t"}
        chat = asyncio.create_task(loop.chat("hello", headers))
        await asked.wait()
        for about in ({"msg_id": "prod-0"}, {"task_id": "t"}):
            said = {**about, "thumbs": "down", "comment": f"not for {MARKER}"}
            assert (await loop.client.post("/feedback", json=said)).status_code == 202
            mark = {**about, "metadata": {"reference": f"not for {MARKER}"}}
            assert (await loop.client.post("/marks", json=mark)).json()["state"] == "waiting"
        other = {"msg_id": "another", "thumbs": "up", "comment": "of somebody else"}
        assert (await loop.client.post("/feedback", json=other)).status_code == 202
        await erased(loop, session_id=SESSION)
        go_on.set()
        assert (await chat)["id"] == "prod-0"
        await loop.chat("hello", {"x-slipstream-task-id": "later"})
        await until(lambda: loop.task("later"))
        await erased(loop, session_id=SESSION)
        assert holds(tmp_path, "of somebody else")
        assert not holds(tmp_path, f"not for {MARKER}")


@pytest.mark.slow
async def test_each_deletion_is_in_the_log_without_content(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        await conversation(loop, "s", "t")
        with capture_logs() as logs:
            await erased(loop, session_id="s")
        [line] = [line for line in logs if line["event"] == "data_erased"]
        assert line["session_id"] == "s"
        assert line["deleted"]["calls"] == 1
        assert MARKER not in str(line)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "names",
    [
        {},
        {"session_id": "a", "task_id": "b"},
        {"session_id": ["a", "b"]},
        {"session_id": "a", "task": "b"},
        {"session_id": ""},
        {"task_id": "x" * 65},
    ],
    ids=str,
)
async def test_what_is_to_be_deleted_must_be_clear(run_loop: RunLoop, names: dict[str, str | list[str]]) -> None:
    async with run_loop() as loop:
        response = await loop.client.delete("/data", params=names)
        assert response.status_code in (400, 422)
        assert response.json()["error"]["message"]
