"""Feedback and marks over REST: whom they are about, and what becomes of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from loops import Loop, RunLoop
from serving import until
from stores import ON_BOTH_STORES, stored_rows

from slipstream.capture.recorder import Recorder

FEEDBACK_REWARD = {"calculators": [{"feedback": {}}], "grace": "1h"}

pytestmark = ON_BOTH_STORES


async def _policy_msg_id(loop: Loop, task_id: str) -> str:
    async def answered() -> Any:
        task = await loop.task(task_id)
        return task and task["groups"] and task["groups"][0]["runs"][0]["msg_id"]

    msg_id: str = await until(answered)
    return msg_id


async def _post(loop: Loop, **body: Any) -> str:
    response = await loop.client.post("/feedback", json=body)
    assert response.status_code == 202, response.text
    receipt: str = response.json()["id"]
    return receipt


async def _target(loop: Loop, receipt: str) -> dict[str, Any]:
    response = await loop.client.get(f"/feedback/{receipt}")
    assert response.status_code == 200
    [target] = response.json()["targets"]
    found: dict[str, Any] = target
    return found


async def test_feedback_on_the_policys_answer_is_its_reward(run_loop: RunLoop) -> None:
    async with run_loop(rewards=FEEDBACK_REWARD) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        msg_id = await _policy_msg_id(loop, "t")
        receipt = await _post(loop, msg_ids=[msg_id], reward=0.8, task_id="theirs", run_id=3)
        of_it = {"task_id": "t", "msg_id": msg_id, "matched_to": "policy"}
        assert await _target(loop, receipt) == {**of_it, "state": "matched"}
        await until(lambda: loop.ready(1))
        await loop.commit()
        [[experience]] = loop.explorer.committed
        assert (experience["reward"], experience["task_id"], experience["run_id"]) == (0.8, "t.0", 0)


@pytest.mark.slow
async def test_feedback_on_productions_answer_is_never_a_shadow_answers_reward(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        answer = await loop.chat("hello", {"x-slipstream-task-id": "t", "x-slipstream-session-id": "s"})
        await until(lambda: loop.ready(1))
        for name in ({"msg_id": answer["id"]}, {"task_id": "t"}, {"session_id": "s"}):
            receipt = await _post(loop, **name, thumbs="down")
            target = await _target(loop, receipt)
            assert (target["state"], target["matched_to"]) == ("matched", "production")
        await until(lambda: loop.ready(1))
        await loop.commit()
        assert [e["reward"] for e in loop.explorer.committed[0]] == [0.5], "the calculator's, not the user's 0"


@pytest.mark.slow
async def test_feedback_on_productions_answer_does_not_end_the_grace(run_loop: RunLoop) -> None:
    async with run_loop(rewards={"calculators": [{"feedback": {"default": 0.25}}], "grace": "1h"}) as loop:
        answer = await loop.chat("hello", {"x-slipstream-task-id": "t"})
        msg_id = await _policy_msg_id(loop, "t")
        await _post(loop, msg_id=answer["id"], thumbs="up")
        await asyncio.sleep(0.1)  # a scorer that took it for the end would be done by now
        task = await loop.task("t")
        assert task is not None
        assert task["groups"][0]["runs"][0]["state"] == "answered"
        await _post(loop, msg_id=msg_id, reward=0.75)
        await until(lambda: loop.ready(1))
        await loop.commit()
        assert [e["reward"] for e in loop.explorer.committed[0]] == [0.75]


@pytest.fixture
def storing(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """An event: while it is not set, no answer is stored."""
    step, storing = Recorder.step, asyncio.Event()

    async def later(self: Recorder) -> bool:
        await storing.wait()
        return await step(self)

    monkeypatch.setattr(Recorder, "step", later)
    return storing


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", [{"task_id": "t"}, {"session_id": "s"}])
@pytest.mark.parametrize("stored_before", [0, 1])
async def test_feedback_is_about_the_last_answer_seen_though_that_is_stored_later(
    run_loop: RunLoop, storing: asyncio.Event, store_url: str, name: dict[str, str], stored_before: int
) -> None:
    headers = {"x-slipstream-task-id": "t", "x-slipstream-session-id": "s"}

    async def stored(calls: int) -> bool:
        task = await loop.task("t")
        return task is not None and len(task["calls"]) == calls

    async with run_loop() as loop:
        if stored_before:
            storing.set()
        first = await loop.chat("use the tool", headers)
        if stored_before:
            await until(lambda: stored(1))
            storing.clear()
        earlier = await _post(loop, msg_id=first["id"], rating=3)
        await loop.chat("the last of the task", headers)
        receipt = await _post(loop, **name, thumbs="up")
        await loop.chat("what the user has not seen by then", headers)
        storing.set()
        await until(lambda: stored(3))
        query = "SELECT position FROM calls JOIN feedback_targets ON call_pk = calls.id WHERE feedback_id = :receipt"
        assert await stored_rows(store_url, query, receipt=receipt) == [(1,)]
        assert (await _target(loop, earlier))["state"] == "matched", "nothing newer is about that answer"


async def test_the_last_word_counts_by_whichever_name_it_waited_for_the_answer(
    run_loop: RunLoop, storing: asyncio.Event
) -> None:
    headers = {"x-slipstream-task-id": "t", "x-slipstream-session-id": "s"}
    async with run_loop() as loop:
        answer = await loop.chat("hello", headers)
        earlier = [await _post(loop, msg_id=answer["id"], rating=1), await _post(loop, session_id="s", rating=2)]
        last = await _post(loop, task_id="t", rating=5)
        storing.set()

        async def matched() -> bool:
            return (await _target(loop, last))["state"] != "waiting"

        await until(matched)
        assert (await _target(loop, last))["state"] == "matched"
        assert [(await _target(loop, receipt))["state"] for receipt in earlier] == ["superseded", "superseded"]


async def test_feedback_may_come_before_its_answer_is_stored(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        receipt = await _post(loop, task_id="later", rating=5)
        assert await _target(loop, receipt) == {"task_id": "later", "state": "waiting", "matched_to": None}
        await loop.chat("hello", {"x-slipstream-task-id": "later"})

        async def matched() -> bool:
            return (await _target(loop, receipt))["state"] == "matched"

        await until(matched)
        assert (await loop.client.get(f"/feedback/{receipt}")).json()["reward"] == 1.0


async def test_a_reward_changes_until_it_is_delivered_and_never_after(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        await until(lambda: loop.ready(1))
        msg_id = await _policy_msg_id(loop, "t")
        first = await _post(loop, msg_id=msg_id, rating=2)
        second = await _post(loop, msg_id=msg_id, rating=4)
        assert (await _target(loop, first))["state"] == "superseded"
        await until(lambda: loop.ready(1))
        await loop.commit()
        assert [e["reward"] for e in loop.explorer.committed[0]] == [0.75]

        late = await _post(loop, msg_id=msg_id, rating=1)
        of_it = {"task_id": "t", "msg_id": msg_id, "matched_to": "policy"}
        assert await _target(loop, late) == {**of_it, "state": "late"}
        assert (await _target(loop, second))["state"] == "matched"
        assert (await loop.commit())["experiences"] == 0


async def test_without_feedback_the_default_counts_when_grace_is_over(run_loop: RunLoop) -> None:
    rewards = {"calculators": [{"feedback": {"default": 0.25}}], "grace": "200ms"}
    async with run_loop(rewards=rewards) as loop:
        await loop.chat("hello")
        await until(lambda: loop.ready(1))
        await loop.commit()
        assert [e["reward"] for e in loop.explorer.committed[0]] == [0.25]


async def test_a_mark_selects_before_at_and_after_the_call(run_loop: RunLoop) -> None:
    async with run_loop(selection={"explicit_mark": {"ttl": "1h"}}) as loop:
        response = await loop.client.post("/marks", json={"task_id": "before", "labels": ["vip"]})
        assert (response.status_code, response.json()["state"]) == (202, "waiting")
        await loop.chat("one", {"x-slipstream-task-id": "before"})
        await loop.chat("two", {"x-slipstream-task-id": "at", "x-slipstream-mark": "vip"})
        answer = await loop.chat("three", {"x-slipstream-task-id": "after"})

        async def refused() -> Any:
            task = await loop.task("after")
            return task and task["reason"] == "no_mark"

        await until(refused)
        response = await loop.client.post(
            "/marks", json={"msg_id": answer["id"], "labels": ["vip"], "metadata": {"reference": "3"}}
        )
        assert response.json()["state"] == "applied"
        await until(lambda: loop.ready(3))
        task = await loop.task("after")
        assert task is not None
        assert (task["labels"], task["metadata"], task["selected"]) == (["vip"], {"reference": "3"}, True)


@pytest.mark.slow
async def test_a_reference_that_comes_afterwards_scores_what_could_not_be_scored(run_loop: RunLoop) -> None:
    rewards = {"calculators": [{"contains": {}}]}
    async with run_loop(rewards=rewards) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})

        async def dropped() -> bool:
            return (await loop.status())["groups"] == {"dropped": 1}

        await until(dropped)
        mark = {"task_id": "t", "metadata": {"reference": "policy says"}}
        assert (await loop.client.post("/marks", json=mark)).json()["state"] == "applied"
        await until(lambda: loop.ready(1))
        await loop.commit()
        assert [e["reward"] for e in loop.explorer.committed[0]] == [1.0]


@pytest.mark.slow
async def test_a_mark_that_waits_longer_than_its_ttl_expires(run_loop: RunLoop) -> None:
    async with run_loop(selection={"explicit_mark": {"ttl": "1ms"}}) as loop:
        await loop.client.post("/marks", json={"task_id": "too-late"})
        await loop.chat("one", {"x-slipstream-task-id": "too-late"})

        async def decided() -> Any:
            task = await loop.task("too-late")
            return task and task["reason"]

        assert await until(decided) == "no_mark"


@pytest.mark.slow
async def test_what_is_posted_is_stored_without_secrets(run_loop: RunLoop) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
    async with run_loop() as loop:
        receipt = await _post(loop, task_id="t", thumbs="up", comment=f"my key: {secret}", source=secret)
        body = {"task_id": "t", "labels": [secret], "metadata": {"reference": {"key": [secret]}}}
        assert (await loop.client.post("/marks", json=body)).status_code == 202
        await loop.chat("hello", {"x-slipstream-task-id": "t", "x-slipstream-mark": f"vip,{secret}"})
        await until(lambda: loop.task("t"))
        shown = (await loop.client.get(f"/feedback/{receipt}")).text + (await loop.client.get("/tasks/t")).text
        assert secret not in shown
        redacted = shown.count("[redacted:api_key]")
        assert redacted == 6, "comment and source, in both; label (the same twice) and metadata"


BAD_BODIES = [
    ("/feedback", b"{not json", 400, None),
    ("/feedback", b"[]", 422, None),
    ("/feedback", b'{"msg_id": "x"}', 422, None),
    ("/feedback", b'{"reward": 1}', 422, None),
    ("/feedback", b'{"msg_id": "x", "task_id": "y", "reward": 1}', 422, None),
    ("/feedback", b'{"msg_id": "x", "reward": 1, "thumbs": "up"}', 422, None),
    ("/feedback", b'{"msg_id": "x", "reward": NaN}', 422, "reward"),
    ("/feedback", b'{"msg_id": "x", "reward": Infinity}', 422, "reward"),
    ("/feedback", b'{"msg_id": "x", "reward": true}', 422, "reward"),
    ("/feedback", b'{"msg_id": "x", "reward": "1"}', 422, "reward"),
    ("/feedback", b'{"msg_id": "x", "reward": 1.5}', 422, "reward"),
    ("/feedback", b'{"msg_id": "x", "rating": 6}', 422, "rating"),
    ("/feedback", b'{"msg_id": "x", "rating": 2.5}', 422, "rating"),
    ("/feedback", b'{"msg_id": "x", "thumbs": "sideways"}', 422, "thumbs"),
    ("/feedback", b'{"msg_id": "", "reward": 1}', 422, "msg_id"),
    ("/feedback", b'{"msg_ids": [], "reward": 1}', 422, "msg_ids"),
    ("/feedback", b'{"msg_ids": ["a", 7], "reward": 1}', 422, "msg_ids.1"),
    ("/feedback", b'{"msg_id": "x", "run_id": 1, "reward": 1}', 422, None),
    ("/feedback", b'{"task_id": "' + b"x" * 65 + b'", "reward": 1}', 422, "task_id"),
    ("/feedback", b'{"msg_id": "x", "reward": 1, "extra": 1}', 422, "extra"),
    ("/feedback", b"", 422, None),
    ("/feedback", b'{"msg_id": "x\\ud800", "reward": 1}', 422, "msg_id"),
    ("/marks", b"{}", 422, None),
    ("/marks", b'{"task_id": "x", "metadata": {"a": "\\ud800"}}', 422, "metadata"),
    ("/marks", b'{"task_id": "x", "metadata": {"a": NaN}}', 422, "metadata"),
    ("/marks", b'{"task_id": "x", "msg_id": "y"}', 422, None),
    ("/marks", b'{"task_id": "x", "labels": "vip"}', 422, "labels"),
    ("/marks", b'{"task_id": "x", "metadata": []}', 422, "metadata"),
]
"""Path, body, status, and the field that the error names."""


async def test_a_bad_body_is_refused_names_the_field_and_changes_nothing(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        for path, body, status, param in BAD_BODIES:
            response = await loop.client.post(path, content=body, headers={"content-type": "application/json"})
            error = response.json()["error"]
            seen = (response.status_code, error["type"], error["param"])
            assert seen == (status, "invalid_request_error", param), (body, response.text)
            assert param is None or param in error["message"]
        assert (await loop.status())["feedback"] == {}


TOLD = {
    ("POST", "/feedback", b"[]"): "the body: expected a JSON object, found an empty list",
    ("POST", "/feedback", b"{not json"): "the body: expected JSON, found none: Expecting property name enclosed in "
    "double quotes at character 1",
    ("POST", "/feedback", b'{"msg_id": "x"}'): "the body: expected exactly one of reward, rating, thumbs, found none",
    ("POST", "/feedback", b'{"msg_id": "x", "session_id": "y", "rating": 1}'): "the body: expected exactly one of "
    "msg_ids, msg_id, task_id, session_id, found msg_id and session_id",
    ("POST", "/feedback", b'{"msg_id": "x", "reward": "1"}'): 'reward: expected a number, found "1"',
    ("POST", "/feedback", b'{"msg_id": "x", "reward": 1.0000001}'): "reward: expected a number from 0 to 1, found "
    "1.0000001",
    ("POST", "/feedback", b'{"msg_id": "x", "rating": 6}'): "rating: expected at most 5, found 6",
    ("POST", "/feedback", b'{"msg_id": "x", "thumbs": "sideways"}'): "thumbs: expected 'up' or 'down', found "
    '"sideways"',
    ("POST", "/feedback", b'{"msg_id": "' + b"x" * 257 + b'", "rating": 1}'): "msg_id: expected text of at most 256 "
    "characters, found 257",
    ("POST", "/feedback", b'{"msg_ids": ["a", 7], "reward": 1}'): "msg_ids.1: expected text, found 7",
    ("POST", "/feedback", b'{"msg_id": "x\\ud800", "reward": 1}'): "msg_id: expected text in valid Unicode, found "
    '"x\\ud800"',
    ("POST", "/marks", b'{"task_id": "x", "label": "vip"}'): "label: unknown field; known here: task_id, msg_id, "
    "labels, metadata",
    ("POST", "/marks", b'{"task_id": "x", "metadata": []}'): "metadata: expected a JSON object, found an empty list",
    ("POST", "/runs/t", b"{}"): "runs: needed, and not given",
    ("POST", "/runs/t", b'{"runs": 0}'): "runs: expected 1 or more, found 0",
    ("POST", "/runs/t/x/finish", b"{}"): 'run_id: expected an integer, found "x"',
    ("POST", "/runs/t/0/finish", b'{"side_effects": [{"tool": "a", "outcom": 1}]}'): "side_effects.0.outcome: needed, "
    "and not given; side_effects.0.outcom: unknown field; known here: tool, outcome",
    ("POST", "/runs/t/0/finish", b'{"reward": 1, "error": "x"}'): "the body: expected reward or error, found both",
    ("POST", "/explorer/feedback", b"[]"): "the body: expected a JSON object, found an empty list",
    ("POST", "/explorer/feedback", b'{"msg_ids": ["a"], "reward": 2}'): "reward: expected a number from 0 to 1, "
    "found 2",
    ("POST", "/explorer/feedback", b'{"msg_ids": ["a"], "reward": 1, "run_id": 1.5}'): "run_id: expected an integer "
    "from 0, a text of 1 to 256 characters, or null, found 1.5",
    ("DELETE", "/data?sesion_id=x", b""): "the query: expected exactly one of session_id, task_id, and nothing else, "
    "found sesion_id",
    ("DELETE", "/data?task_id=", b""): 'task_id: expected text of 1 or more characters, found ""',
    ("PUT", "/status", b""): "/status: expected the method GET, found PUT",
    ("GET", "/stats", b""): "GET /stats: there is no such route; GET /openapi.json lists them",
}
"""Method, path and body, and what a stranger is told."""


async def test_each_error_tells_the_field_what_was_expected_and_what_was_found(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        said = {}
        for method, path, body in TOLD:
            headers = {"content-type": "application/json"} if body else {}
            response = await loop.client.request(method, path, content=body, headers=headers)
            said[method, path, body] = response.json()["error"]["message"]
        assert said == TOLD
        unsaid = await loop.client.post("/feedback", content=b'{"msg_id": "x", "reward": 1}')
        assert "without the header content-type: application/json" in unsaid.json()["error"]["message"]


@pytest.mark.slow
async def test_an_error_is_short_and_holds_no_key_whatever_the_body(run_loop: RunLoop) -> None:
    """A megabyte of unknown fields, and a key in the place of a number."""
    async with run_loop() as loop:
        fields = {f"field {number}": 1 for number in range(20_000)}
        many = (await loop.client.post("/feedback", json=fields)).json()["error"]["message"]
        assert len(many) < 10_000
        assert many.endswith("; and 19990 more")
        key = "sk-proj-" + "a1" * 20
        wrong = (await loop.client.post("/feedback", json={"msg_id": "x", "reward": key})).json()["error"]["message"]
        assert key not in wrong
        assert "[redacted:api_key]" in wrong


@pytest.mark.slow
async def test_the_openapi_page_tells_of_errors_as_they_are(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        described = (await loop.client.get("/openapi.json")).json()
        refused = described["paths"]["/feedback"]["post"]["responses"]["422"]["content"]["application/json"]["schema"]
        assert refused["$ref"].endswith("/Refusal")
        response = await loop.client.post("/feedback", json={})
        problem = described["components"]["schemas"]["Problem"]["required"]
        assert set(problem) == set(response.json()["error"])


async def test_an_unknown_receipt_and_an_unknown_route_are_404_in_the_same_format(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        for path in ("/feedback/none", "/tasks/none", "/nowhere"):
            response = await loop.client.get(path)
            assert response.status_code == 404
            assert set(response.json()["error"]) == {"message", "type", "code", "param"}


async def test_what_is_no_json_is_told_so(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        for body in (b"nope", b"[" * 100_000, b'{"msg_id": "\xff"}'):
            refused = await loop.client.post("/feedback", content=body, headers={"content-type": "application/json"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_json"), body[:20]
