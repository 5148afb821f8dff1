"""From an answer to its task, and what became of it: `GET /tasks`, `GET /tasks/{task_id}`, `GET /calls/{msg_id}`."""

from __future__ import annotations

import base64
import json
import secrets
from typing import Any

import pytest
import replaying
from loops import Loop, RunLoop
from serving import until
from shared_by_tenants import RunShared, Shared
from stores import ON_BOTH_STORES

NAMED = {"x-slipstream-task-id": "order-1", "x-slipstream-session-id": "chat-7", "x-slipstream-mark": "vip"}
SECRET = "heron-4711"
"""Said by a user, in metadata and in an answer: nobody without an admin key is to see it."""


async def followed(loop: Loop) -> tuple[dict[str, Any], dict[str, Any]]:
    """A task of two calls with a run of each that is scored; its last answer and the task."""
    answer = await loop.chat("use the tool", {**NAMED, "x-slipstream-metadata": json.dumps({"who": SECRET})})
    message = answer["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "42"}
    more = [{"role": "user", "content": "use the tool"}, message, result]
    last = await loop.chat([*more, {"role": "user", "content": f"I am {SECRET}"}], NAMED)
    await until(lambda: loop.ready(2))
    task = await loop.task("order-1")
    assert task is not None
    return last, task


@pytest.mark.sampled(1)
@ON_BOTH_STORES
@pytest.mark.parametrize("key", [None, base64.b64encode(secrets.token_bytes(32)).decode()], ids=["plain", "encrypted"])
async def test_an_answer_leads_to_its_task_and_that_to_everything(
    run_loop: RunLoop, store_url: str, key: str | None
) -> None:
    async with run_loop(store={"url": store_url, "encryption_key": key}, capture={"redact": []}) as loop:
        last, task = await followed(loop)
        (figures,) = [each["figures"] for each in (await loop.client.get("/tasks")).json()["tasks"]]
        assert (figures["calls"], figures["runs"], figures["scored_runs"]) == (2, 2, 2)
        assert figures["reward"] == {"mean": 0.5, "least": 0.5, "most": 0.5}
        version = figures["policy_version"]
        for query, names in (
            (f"version={version}&reward_below=0.6&id_prefix=ord&dialect=chat", ["order-1"]),
            (f"version={version + 1}", []),
            ("reward_above=0.5", []),
            ("dialect=responses", []),
            (f"text={SECRET.upper()}", ["order-1"]),
            ("text=use+the+tool&session_id=chat-7", ["order-1"]),
            ("text=look_up", ["order-1"]),
            ("text=never+said", []),
            (f"text={SECRET}&label=none", []),
        ):
            shown = (await loop.client.get(f"/tasks?{query}")).json()["tasks"]
            assert [each["task_id"] for each in shown] == names, query
        said = await replaying.posted(loop, {"msg_id": last["id"], "thumbs": "up"})
        assert said["targets"][0]["task_id"] == "order-1"
        await replaying.posted(loop, {"task_id": "order-1", "reward": 0.25, "comment": SECRET, "source": "grader"})
        newest, oldest = (await loop.client.get("/tasks/order-1")).json()["feedback"]
        assert (oldest["id"], oldest["msg_id"], oldest["thumbs"]) == (said["id"], last["id"], "up")
        assert (newest["task_id"], newest["reward"], newest["comment"]) == ("order-1", 0.25, SECRET)
        assert (newest["matched_to"], newest["key"]) == ("production", None)

        found = (await loop.client.get(f"/calls/{last['id']}")).json()
        assert (found["task_id"], found["session_id"], found["position"]) == ("order-1", "chat-7", 1)
        assert (found["answered_by"], found["run"]) == ("production", None)
        assert found["answer"] == last
        assert found["request"]["messages"][-1]["content"] == f"I am {SECRET}"

        assert [message["role"] for message in task["conversation"]] == ["user", "assistant", "tool", "user"]
        assert task["calls"][1]["answer"] == last["choices"][0]["message"]
        assert task["calls"][0]["answer"] == task["conversation"][1]
        assert task["metadata"] == {"who": SECRET}
        (run,) = task["groups"][1]["runs"]
        assert (run["reward"], run["breakdown"]) == (0.5, {"constant": 0.5})
        assert [group["position"] for group in task["groups"]] == [0, 1]
        tokens = {"prompt_tokens": 3, "completion_tokens": 2}
        assert run["usage"] == task["calls"][1]["usage"] == tokens
        assert run["latency"] > 0
        policy = (await loop.client.get(f"/calls/{run['msg_id']}")).json()
        assert (policy["answered_by"], policy["task_id"], policy["position"]) == ("policy", "order-1", 1)
        assert policy["run"]["group_id"] == task["groups"][1]["group_id"]
        assert policy["answer"]["choices"][0]["message"] == run["answer"]
        assert policy["request"]["messages"] == task["conversation"]

        (listed,) = (await loop.client.get("/tasks")).json()["tasks"]
        del listed["figures"]
        assert listed == {name: task[name] for name in listed}
        assert SECRET not in json.dumps(listed)


async def test_each_answer_of_a_replay_is_shown_in_its_order(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        (run,) = (await replaying.open_runs(loop, "order/1"))["runs"]
        async with replaying.sdk(loop, run) as client:
            made = [await replaying.ask(client, text) for text in ("first", "second")]
        await replaying.finish(loop, "order/1", reward=1.0, breakdown={"exact": 1.0})
        task = (await loop.client.get("/tasks/order%2F1")).json()
        assert (task["calls"], task["conversation"]) == ([], [])
        (run,) = task["groups"][0]["runs"]
        assert (run["msg_ids"], run["reward"], run["breakdown"]) == (made, 1.0, {"exact": 1.0})
        for msg_id, answer in zip(made, run["answers"], strict=True):
            call = (await loop.client.get(f"/calls/{msg_id}")).json()
            assert call["answer"]["choices"][0]["message"] == answer
            assert (call["run"]["kind"], call["run"]["run_id"], call["position"]) == ("agent_replay", 0, None)
        asked = [(await loop.client.get(f"/calls/{msg_id}")).json()["request"]["messages"][0] for msg_id in made]
        assert [message["content"] for message in asked] == ["first", "second"]


async def test_a_key_without_admin_sees_no_content(run_shared: RunShared) -> None:
    async with run_shared(capture={"redact": []}) as shared:
        async with shared.as_("agent") as agent:
            answer = await agent.chat(f"I am {SECRET}", {**NAMED, "x-slipstream-metadata": json.dumps({"s": SECRET})})

        async def run() -> Any:
            task = (await shared.ask("admin", "GET", "/tasks/order-1")).json()
            runs = [run for group in task.get("groups", ()) for run in group["runs"] if run["state"] == "scored"]
            return runs[0] if runs else None

        run = await until(run)
        pages = ("/tasks", "/tasks?label=vip", "/tasks/order-1", f"/calls/{answer['id']}", f"/calls/{run['msg_id']}")
        content = {"conversation", "metadata", "answer", "answers", "request", "breakdown", "comment"}
        for path in pages:
            seen = await shared.ask("admin", "GET", path)
            assert seen.status_code == 200, path
            assert (SECRET in seen.text) is (path in pages[2:]), path
            told = await shared.ask("metrics", "GET", path)
            assert told.status_code == 200, path
            assert SECRET not in told.text, path
            assert not content & names(told.json()), path
        assert len((await shared.ask("admin", "GET", f"/tasks?text={SECRET}")).json()["tasks"]) == 1
        refused = await shared.ask("metrics", "GET", f"/tasks?text={SECRET}")
        assert (refused.status_code, refused.json()["error"]["param"]) == (403, "text")
        for path in pages[2:]:
            assert (await shared.ask("agent", "GET", path)).json() == (await shared.ask("metrics", "GET", path)).json()
        assert (await shared.ask("agent", "GET", "/tasks")).status_code == 403


def names(value: Any) -> set[str]:
    """Of all fields, however deep."""
    if isinstance(value, dict):
        return set(value).union(*map(names, value.values()))
    return set().union(*map(names, value)) if isinstance(value, list) else set()


async def test_each_tenant_sees_its_own(run_shared: RunShared) -> None:
    async with run_shared() as shared:
        answers = {key: await shared.chat(key, task_id="order-1") for key in ("agent-a", "agent-b")}
        await shared.stored(2)
        for key, tenant in (("admin-a", "acme"), ("admin-b", "beta")):
            (task,) = (await shared.ask(key, "GET", "/tasks")).json()["tasks"]
            assert (task["tenant"], task["task_id"]) == (tenant, "order-1")
        theirs = f"/calls/{answers['agent-b']['id']}"
        assert (await shared.ask("admin-a", "GET", theirs)).status_code == 404
        assert (await shared.ask("agent-b", "GET", theirs)).json()["tenant"] == "beta"
        both = (await shared.ask("admin", "GET", "/tasks")).json()["tasks"]
        assert sorted(task["tenant"] for task in both) == ["acme", "beta"]
        assert (await shared.ask("admin", "GET", theirs)).json()["answer"] == answers["agent-b"]
        acme = {"x-slipstream-tenant": "acme"}
        (task,) = (await shared.ask("admin", "GET", "/tasks", headers=acme)).json()["tasks"]
        assert task["tenant"] == "acme"
        assert (await shared.ask("metrics", "GET", "/tasks")).json() == {"tasks": [], "next": None}


async def test_failures_are_named_to_their_tenant(run_shared: RunShared) -> None:
    def failed(status: Any) -> list[str]:
        return [run["group_id"] for run in status.json()["failed_runs"]]

    async with run_shared(rewards={"calculators": [{"exact_match": {}}]}) as shared:  # without a reference
        await shared.chat("agent-a", task_id="order-1")
        await until(lambda: _has_failed(shared))
        assert failed(await shared.ask("admin-a", "GET", "/status")) == ["tenant=acme/order-1.0"]
        for key in ("metrics", "admin-b"):
            assert failed(await shared.ask(key, "GET", "/status")) == []
        for number in (2, 3):  # enough for a problem, whose reason may quote an answer as well
            await shared.chat("agent-a", task_id=f"order-{number}")
        await until(lambda: _problem(shared, "admin-a"))
        assert "exact_match: " in await _problem(shared, "admin-a")
        for key in ("metrics", "admin-b"):
            assert (await _problem(shared, key)).endswith("because: (it is told to keys of its tenant)")


async def _problem(shared: Shared, key: str) -> str:
    """What is found of the problem that nothing is scored; empty without one."""
    problems = (await shared.ask(key, "GET", "/status")).json()["problems"]
    return "".join(problem["found"] for problem in problems if problem["code"] == "live.nothing_scored")


async def _has_failed(shared: Shared) -> bool:
    return bool((await shared.ask("admin", "GET", "/status")).json()["failed_runs"])


WRONG = {
    "limit=0": "limit: expected 1 or more",
    "limit=201": "limit: expected at most 200",
    "cursor=nonsense": "cursor: expected `next` of the page before",
    "state=closed": "state: expected",
    "selected=perhaps": "selected: expected true or false",
    "since=yesterday": "since: expected a number",
    "until=nan": "until: expected a finite number",
    "dialect=latin": "dialect: expected",
    "version=8.5": "version: expected an integer",
    "version=-1": "version: expected 0 or more",
    "version=2147483648": "version: expected at most 2147483647",
    "reward_below=nan": "reward_below: expected a finite number",
    "text=a": "text: expected text of 2 or more characters",
    "labels=vip": "labels: unknown field; known here: limit, cursor, session_id",
    "session_id=": "session_id: expected",
    "label=%00": "label: expected",
}


async def test_a_wrong_query_is_refused_by_its_field(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        for query, told in WRONG.items():
            refused = await loop.client.get(f"/tasks?{query}")
            assert refused.status_code == 422
            assert refused.json()["error"]["message"].startswith(told), refused.text
            assert refused.json()["error"]["param"] == query.partition("=")[0]
        for path in ("/calls/nobody's", "/calls/%00", "/tasks/nobody's", f"/calls/{'x' * 257}"):
            assert (await loop.client.get(path)).status_code in (404, 422)
