"""Tenants: what one of them names is another's never, and only an admin key without a tenant crosses them."""

from __future__ import annotations

import time
from typing import Any, cast

import facade_client
import pytest
from loops import RunLoop
from shared_by_tenants import RunShared, Shared
from stores import ON_BOTH_STORES, stored_rows

from slipstream.api.control import create_control
from slipstream.store.database import Database
from slipstream.store.preferences import PairKind
from slipstream.store.tables.preferences import PreferencePairRow
from slipstream.tenants import qualified


def continued(answer: dict[str, Any], more: str) -> list[dict[str, Any]]:
    """What the next call of a conversation that began with "hello" sends."""
    return [{"role": "user", "content": "hello"}, answer["choices"][0]["message"], {"role": "user", "content": more}]


@pytest.mark.slow
async def test_callers_with_different_keys_are_two_though_production_sees_one(run_shared: RunShared) -> None:
    async with run_shared() as shared:
        answer = await shared.chat("agent")
        await shared.chat("other-agent", continued(answer, "a secret of the other one"))
        await shared.chat("agent", continued(answer, "go on"))
        first, others, second = await shared.stored(3)
        assert others[0] != first[0], "another key's call is another conversation"
        assert second[0] == first[0], "and takes nothing from the one that it looked like"
        deleted = await shared.ask("admin", "DELETE", "/data", params={"session_id": first[0]})
        assert deleted.json()["deleted"]["calls"] == 2
        assert await shared.stored(1) == [others]


@pytest.mark.parametrize(
    ("header", "settings"),
    [("x-goog-api-key", {}), ("X-User-Id", {"access": {"identity_headers": ["x-user-ID"]}})],
)
async def test_a_header_that_tells_callers_apart_tells_their_conversations_apart(
    header: str, settings: dict[str, Any], run_loop: RunLoop, store_url: str
) -> None:
    async with run_loop(**settings) as loop:
        shared = Shared(loop, {}, store_url)
        answer = await loop.chat(headers={header: "one"})
        await loop.chat(continued(answer, "a secret of the other one"), headers={header: "two"})
        await loop.chat(continued(answer, "go on"), headers={header: "one"})
        first, others, second = await shared.stored(3)
        assert first[0] == second[0] != others[0]


NAMES = {"session_id": "chat-7", "task_id": "order-1"}


@ON_BOTH_STORES
async def test_what_two_tenants_call_by_the_same_names_is_two_things(run_shared: RunShared) -> None:
    async with run_shared() as shared:
        of_a = (await shared.chat("agent-a", "I am of A", **NAMES))["id"]
        of_b = (await shared.chat("agent-b", "I am of B", **NAMES))["id"]
        (session_a, task_a, _), (session_b, task_b, _) = await shared.stored(2)
        assert (session_a, task_a) != (session_b, task_b)

        for about in (NAMES["session_id"], NAMES["task_id"]):
            kind = next(kind for kind, name in NAMES.items() if name == about)
            said = await shared.ask("backend-a", "POST", "/feedback", json={kind: about, "thumbs": "up"})
            (target,) = await shared.targets("agent-a", said)
            assert (target["state"], target["matched_to"], target["task_id"]) == ("matched", "production", "order-1")
            assert (await shared.ask("agent-b", "GET", f"/feedback/{said.json()['id']}")).status_code == 404
        matched = "SELECT c.msg_id FROM feedback_targets f JOIN calls c ON c.id = f.call_pk"
        assert {name.rpartition("/")[2] for (name,) in await stored_rows(shared.store_url, matched)} == {of_a}

        for key, id_ in (("agent-b", of_a), ("agent-b", "nobody's")):
            said = await shared.ask(key, "POST", "/feedback", json={"msg_id": id_, "thumbs": "down"})
            assert await shared.targets(key, said) == [
                {"task_id": None, "msg_id": id_, "state": "waiting", "matched_to": None}
            ], "another tenant's answer is as unknown as one that nobody gave"
            mark = await shared.ask(key, "POST", "/marks", json={"msg_id": id_, "labels": ["mine"]})
            assert mark.json()["state"] == "waiting"

        for key, id_ in (("admin-a", of_a), ("admin-b", of_b)):
            task = (await shared.ask(key, "GET", "/tasks/order-1")).json()
            assert (task["session_id"], task["labels"]) == ("chat-7", [])
            assert [call["msg_id"] for call in task["calls"]] == [id_]

        deleted = await shared.ask("admin-a", "DELETE", "/data", params={"session_id": "chat-7"})
        assert deleted.json()["deleted"] | {"groups": 0, "runs": 0} == {
            "tasks": 1, "calls": 1, "groups": 0, "runs": 0, "feedback": 2, "marks": 0, "facade_groups": 0,
            "exchanges": 0, "preferences": 0,
        }  # fmt: skip
        assert [row[1] for row in await shared.stored(1)] == [task_b]
        assert (await shared.ask("admin-a", "GET", "/tasks/order-1")).status_code == 404
        assert (await shared.ask("admin-b", "GET", "/tasks/order-1")).status_code == 200


@ON_BOTH_STORES
async def test_replays_are_their_tenants(run_shared: RunShared) -> None:
    chat = {"model": "policy", "messages": [{"role": "user", "content": "hello"}]}
    async with run_shared() as shared:
        opened = await shared.ask("agent-a", "POST", "/runs/order-1", json={"runs": 1})
        assert opened.status_code == 201
        assert opened.json()["runs"] == [{"run_id": 0, "base_url": "/runs/order-1/0/v1"}]
        for method, path in (
            ("POST", "/runs/order-1/0/v1/chat/completions"),
            ("GET", "/runs/order-1/0/v1/models"),
            ("POST", "/runs/order-1/0/finish"),
            ("GET", "/runs/order-1"),
        ):
            refused = await shared.ask("agent-b", method, path, json=chat if "chat" in path else {})
            assert refused.status_code == 404, f"{method} {path}: {refused.text}"
            assert "acme" not in refused.text
        assert (await shared.ask("agent-b", "POST", "/runs/order-1", json={"runs": 1})).status_code == 201
        answers = {}
        for key in ("agent-a", "agent-b"):
            answer = await shared.ask(key, "POST", "/runs/order-1/0/v1/chat/completions", json=chat)
            answers[key] = answer.json()["id"]
            said = await shared.ask(key, "POST", "/feedback", json={"msg_id": answers[key], "reward": 1.0})
            (target,) = await shared.targets(key, said)
            assert (target["matched_to"], target["task_id"]) == ("policy", "order-1")
        said = await shared.ask("agent-b", "POST", "/feedback", json={"msg_id": answers["agent-a"], "reward": 0.0})
        (target,) = await shared.targets("agent-b", said)
        assert (target["state"], target["matched_to"]) == ("waiting", None)
        assert (await shared.ask("backend-a", "POST", "/runs/order-1/0/finish", json={})).status_code == 200
        run = (await shared.ask("agent-b", "GET", "/runs/order-1")).json()["runs"][0]
        assert (run["state"], run["msg_ids"]) == ("open", [answers["agent-b"]])
        deleted = await shared.ask("admin-a", "DELETE", "/data", params={"task_id": "order-1"})
        assert deleted.json()["deleted"]["runs"] == 1
        assert (await shared.ask("agent-b", "GET", "/runs/order-1")).json()["runs"] == [run]


@ON_BOTH_STORES
async def test_answers_of_the_facade_are_their_tenants(run_shared: RunShared) -> None:
    async with run_shared(facade={"group_size": 2}) as shared, shared.as_("admin-a") as a, shared.as_("admin-b") as b:
        of_a, of_b = await facade_client.ask(a), await facade_client.ask(b)
        run = {"task_id": "t" * 64, "run_id": 0}
        said = await facade_client.reward(b, of_a, **run)
        assert (said["accepted"], said["unknown"]) == (0, [of_a])
        for loop, msg_id in ((a, of_a), (b, of_b)):
            said = await facade_client.reward(loop, msg_id, **run)
            assert (said["accepted"], said["unknown"]) == (1, [])
        groups = await stored_rows(shared.store_url, "SELECT id FROM facade_groups")
        assert len(groups) == 2, "the same task_id, and no group of both"
        assert {len(name) for (name,) in groups} == {64}, "as much as Trinity keeps of a task's id"


@pytest.mark.slow
async def test_an_admin_key_without_a_tenant_crosses_them_and_says_which_where_several_are_meant(
    run_shared: RunShared,
) -> None:
    async with run_shared() as shared:
        await shared.chat("agent-a", session_id="only-a", task_id="a")
        await shared.chat("agent-a", **NAMES)
        await shared.chat("agent-b", **NAMES)
        last = await shared.chat("agent", session_id="only-default", task_id="d")
        await shared.stored(4)
        for task_id, tenant in (("a", "acme"), ("d", "default")):
            assert (await shared.ask("admin", "GET", f"/tasks/{task_id}")).json()["tenant"] == tenant
            assert (await shared.ask("admin-b", "GET", f"/tasks/{task_id}")).status_code == 404
        said = await shared.ask("admin", "POST", "/feedback", json={"session_id": "only-a", "thumbs": "up"})
        (target,) = await shared.targets("admin", said)
        assert target["task_id"] == "a"
        assert (await shared.ask("backend-a", "GET", f"/feedback/{said.json()['id']}")).status_code == 200

        several = await shared.ask("admin", "DELETE", "/data", params={"session_id": "chat-7"})
        assert several.status_code == 409
        assert several.json()["error"]["code"] == "several_tenants"
        assert "acme, beta" in several.json()["error"]["message"]
        beta = {"x-slipstream-tenant": "beta"}
        deleted = await shared.ask("admin", "DELETE", "/data", params={"session_id": "chat-7"}, headers=beta)
        assert deleted.json()["deleted"]["calls"] == 1
        assert (await shared.ask("admin-a", "GET", "/tasks/order-1")).status_code == 200
        assert (await shared.ask("admin-b", "GET", "/tasks/order-1")).status_code == 404

        for key in ("admin-a", "backend-a"):
            body = {"msg_id": last["id"], "thumbs": "up"}
            refused = await shared.ask(key, "POST", "/feedback", json=body, headers=beta)
            assert refused.status_code == 403
            assert refused.json()["error"]["code"] == "slipstream_tenant_forbidden"


async def test_a_deletion_by_a_key_that_crosses_tenants_never_takes_one_for_another(
    run_shared: RunShared, store_url: str
) -> None:
    async def delete(name: str, **headers: str) -> tuple[int, Any]:
        answer = await shared.ask("admin", "DELETE", "/data", params={"session_id": name}, headers=headers)
        return answer.status_code, answer.json()

    database = Database(store_url)
    await database.open()
    async with database.write() as session:
        for tenant, name in (("acme", "judged"), ("acme", "both"), ("beta", "both")):
            ref, pair = qualified(tenant, name), f"{tenant}-{name}"
            session.add(
                PreferencePairRow(
                    id=pair,
                    kind=PairKind.PRODUCTION,
                    tenant=tenant,
                    task_ref=ref,
                    session_ref=ref,
                    group_id=pair,
                    left_variant="production",
                    right_variant="policy",
                    created_at=time.time(),
                    updated_at=time.time(),
                )
            )
    await database.close()

    async with run_shared() as shared:
        status, said = await delete("never-seen")
        assert (status, said["error"]["code"]) == (409, "several_tenants")
        assert "x-slipstream-tenant" in said["error"]["message"]
        assert (await delete("judged"))[1]["deleted"]["preferences"] == 1, "its task is gone, and its judgement is not"
        assert (await delete("judged"))[0] == 200, "deleted already is no error"
        assert (await delete("both"))[0] == 409
        status, said = await delete("both", **{"x-slipstream-tenant": "beta"})
        assert said["deleted"]["preferences"] == 1
        assert await stored_rows(store_url, "SELECT id FROM preference_pairs") == [("acme-both",)]


async def test_no_caller_can_set_what_it_may_reach(run_shared: RunShared) -> None:
    async with run_shared() as shared:
        await shared.chat("agent-a", **NAMES)
        await shared.stored(1)
        forged = b'{"tenant":null,"content":true}'
        for headers in (
            [("x-slipstream-scope", forged)],
            [("X-Slipstream-SCOPE", forged), ("x-slipstream-scope", forged)],
            [("x-slipstream-scope", forged), ("connection", b"x-slipstream-scope")],
            [("connection", b"keep-alive, x-slipstream-scope")],
        ):
            for key, status in (("admin-b", 404), ("admin-a", 200)):
                own = [("authorization", shared.by(key)["authorization"].encode())]
                url = "/tasks/order-1"
                found = await shared.loop.client.get(url, headers=[*own, *headers])  # type: ignore[list-item]
                assert found.status_code == status, (key, headers)


async def test_an_id_that_looks_like_another_tenants_is_not(run_shared: RunShared) -> None:
    async with run_shared() as shared:
        await shared.chat("agent-a", **NAMES)
        await shared.chat("agent", session_id="tenant=acme/chat-7", task_id="tenant=acme/order-1")
        (session_a, task_a, _), (session, task, _) = await shared.stored(2)
        assert session != session_a
        assert task != task_a
        named = "/tasks/tenant%3Dacme%2Forder-1"
        own = (await shared.ask("admin", "GET", named, headers={"x-slipstream-tenant": "default"})).json()
        assert (own["task_id"], own["tenant"]) == ("tenant=acme/order-1", "default")


SHARED = {
    "get /readyz", "get /metrics", "get /serving", "get /rollouts", "get /rollouts/{rollout_id}",
    "get /experiments", "get /experiments/{experiment_id}",
    "get /explorer/health", "get /explorer/metrics", "get /explorer/v1/models",
    "get /versions", "get /versions/{version}", "get /aliases",
    "get /aliases/{name}/history", "get /evaluations", "get /evaluations/{evaluation_id}", "get /learning",
    "get /session", "post /session", "delete /session",
}  # fmt: skip
"""Routes that name nothing of a tenant's: probes, numbers, who is signed in, and what all tenants share."""


def test_each_route_asks_what_its_caller_may_reach() -> None:
    schema = create_control(cast(Any, None), None).openapi()
    routes = {
        f"{method} {path}": route for path, methods in schema["paths"].items() for method, route in methods.items()
    }
    asks = {"x-slipstream-tenant"}  # which comes with ScopeDep
    unscoped = {
        name for name, route in routes.items() if not asks & {part["name"] for part in route.get("parameters", ())}
    }
    assert unscoped == SHARED, "a route that reaches the store takes ScopeDep, or stands here"
    assert len(routes) > len(SHARED)
