"""Who may do what: each route with each role, as docs/access.md has them, and what spellings of an address change."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from documented import lists_all
from fastapi import FastAPI
from guarded import ROLES, Guarded, RunGuarded, answer_to
from serving import serving, until

from slipstream.access.roles import control_path, roles_for

PAGE = (Path(__file__).parents[2] / "docs" / "access.md").read_text(encoding="utf-8")
UNDER_V1 = {"GET /healthz", "GET /openapi.json", "GET /docs", "POST /v1/chat/completions", "GET /v1/models"}
"""Routes that the description of the control API does not list."""

SECRET = "heron-4711"
"""Said by a user, an agent, an annotator and a replay: no answer whose content is `none` has it in it."""


class Row(NamedTuple):
    """A route of the table in docs/access.md: whose answers have content in them, and who may ask."""

    content: set[str]
    roles: set[str]


def table() -> dict[str, Row]:
    """Routes of the table by method and path; `everybody` and `all` are written out."""
    found: dict[str, Row] = {}
    for route, content, roles in re.findall(r"^\| `([A-Z]+ /[^`]*)` \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE):
        assert route not in found, f"{route} has two rows"
        may = {*ROLES, "nobody"} if roles == "everybody" else set(re.findall(r"`(\w+)`", roles))
        told = set(re.findall(r"`(\w+)`", content))
        found[route] = Row(may if told == {"all"} else set() if told == {"none"} else told, may)
    return found


async def spoken(guarded: Guarded) -> dict[str, str]:
    """Have the secret said wherever somebody can; returns the ids by the names that routes give them."""
    loop, admin = guarded.loop, guarded.key("admin")
    said = {"x-slipstream-task-id": "t", "x-slipstream-metadata": json.dumps({"who": SECRET})}
    tool = {"type": "function", "function": {"name": "look", "description": SECRET}}
    answer = await loop.chat(f"I am {SECRET}", {**said, **admin}, tools=[tool])
    await loop.chat(f"again, I am {SECRET}", admin)

    async def asked(method: str, path: str, body: Any = None) -> Any:
        response = await loop.client.request(method, path, headers=admin, json=body)
        assert response.status_code < 300, (path, response.text)
        return response.json()

    async def pair() -> Any:
        return (await asked("GET", "/preferences/next?annotator=ann"))["pair"]

    shown = await until(pair)
    judged = {"pair_id": shown["pair_id"], "choice": "a", "annotator": "ann", "reason": SECRET}
    await asked("POST", "/preferences", judged)
    receipt = await asked("POST", "/feedback", {"msg_id": answer["id"], "thumbs": "up", "comment": SECRET})
    await asked("POST", "/runs/r", {"runs": 1, "metadata": {"who": SECRET}})
    await asked("POST", "/runs/r/0/finish", {"error": f"it said {SECRET}"})
    return {"msg_id": answer["id"], "feedback_id": receipt["id"]}


async def test_each_role_may_do_what_the_table_says_and_nothing_else(run_guarded: RunGuarded) -> None:
    rows = table()
    async with run_guarded(capture={"redact": []}) as guarded:
        client = guarded.loop.client
        schema = (await client.get("/openapi.json", headers=guarded.key("admin"))).json()
        named = {f"{method.upper()} {path}" for path, methods in schema["paths"].items() for method in methods}
        lists_all('docs/access.md, "Route by route"', rows, named | UNDER_V1)
        told: set[tuple[str, str]] = set()
        wrong: list[str] = []
        ids = await spoken(guarded)
        for route, role in itertools.product(sorted(rows), ["nobody", *ROLES]):
            method, path = route.split()
            # a write is asked for in vain, so that it changes nothing that is looked at afterwards
            task_id = "r" if path == "/runs/{task_id}" else "t"
            names = ids if method == "GET" else {"msg_id": "m", "feedback_id": "f"}
            numbers = {"run_id": 0, "rollout_id": 1, "version": 0, "evaluation_id": 1, "experiment_id": 1}
            url = path.format(task_id=task_id, name="n", path="p", **numbers, **names)
            if route == "GET /preferences/next":
                url += "?annotator=bob"  # the same pair is kept for him
            if route == "GET /events":
                url += "?seconds=0"  # it would stay open
            headers = {} if role == "nobody" else guarded.key(role)
            response = await client.request(method, url, headers=headers, json={})
            client.cookies.clear()  # nobody stays signed in
            refused = response.status_code in (401, 403) and "slipstream" in response.json()["error"]["code"]
            if (role in rows[route].roles) is refused:
                wrong.append(f"{role} {route}: {response.status_code}")
            if refused and role != "nobody":
                message = response.json()["error"]["message"]
                may = rows[route].roles
                assert all(each in message for each in may), (
                    f"{route}: docs/access.md says {sorted(may)}, roles_for in access/roles.py {message!r}"
                )
            if SECRET in response.text:
                told.add((route, role))
        assert wrong == []
    reads = {route: row for route, row in rows.items() if route.startswith("GET ")}
    assert {route for route, _ in told} == {route for route, row in reads.items() if row.content}
    assert told == {(route, role) for route, row in reads.items() for role in row.content}


async def test_an_operator_decides_for_all_tenants_and_reads_nothing_that_was_said(run_guarded: RunGuarded) -> None:
    async with run_guarded() as guarded:
        client, operator = guarded.loop.client, guarded.key("operator")
        killed = await client.post("/serving/kill", headers=operator)
        assert (killed.status_code, killed.json()["killed"]) == (200, True)
        assert (await client.post("/serving/revive", headers=operator)).json()["killed"] is False
        named = await client.put("/aliases/champion", headers=operator, json={"version": 0})
        assert named.status_code == 200, named.text
        opened = await client.post("/rollouts", headers=operator, json={"version": 8})
        assert opened.json()["error"]["code"] != "slipstream_tenant_forbidden"
        elsewhere = {**operator, "x-slipstream-tenant": "acme"}
        assert (await client.get("/tasks", headers=elsewhere)).json() == {"tasks": [], "next": None}
        (kill, *_) = (await client.get("/audit?action=serving_kill", headers=guarded.key("admin"))).json()["entries"]
        assert kill["key"] == "operator"


async def test_what_is_refused_is_said_in_openais_format(run_guarded: RunGuarded) -> None:
    async with run_guarded() as guarded:
        client = guarded.loop.client
        response = await client.post("/v1/chat/completions", json={})
        assert response.status_code == 401
        assert response.headers["www-authenticate"].startswith("Bearer")
        error = response.json()["error"]
        assert error["code"] == "slipstream_key_missing"
        assert "x-slipstream-key" in error["message"]
        response = await client.delete("/data", headers=guarded.key("proxy"))
        assert response.status_code == 403
        assert response.json()["error"] == {
            "message": "Slipstream: this needs a key with the role admin; this one (proxy) has proxy",
            "type": "permission_error",
            "code": "slipstream_role_missing",
            "param": None,
        }
        response = await client.get("/status", headers={"x-slipstream-key": "slp_" + "x" * 43})
        assert response.status_code == 401
        assert response.json()["error"]["code"] == "slipstream_key_unknown"
        assert guarded.production.heads == [], "production hears of none of it"


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/commit", "/commit"),
        (b"/%63ommit", "/commit"),
        (b"/feedback/../commit", "/feedback/../commit"),
        (b"/feedback%2F..%2Fcommit", "/feedback/../commit"),
        (b"//commit", "//commit"),
        (b"/commit?x=/feedback", "/commit"),
        (b"/commit#/feedback", "/commit"),
        (b"/feedback;/commit", "/feedback;/commit"),
        (b"/metrics%0a", "/metrics\n"),
        (b"/v%31/models", "/v1/models"),
        (b"/runs/t/0/%66inish", "/runs/t/0/finish"),
        (b"/explorer%2Ffeedback", "/explorer/feedback"),
    ],
)
async def test_a_path_is_read_as_the_control_api_reads_it(target: bytes, path: str) -> None:
    """A guard that reads an address in another way than the router behind it lets through what it must not."""
    seen: list[str] = []
    app = FastAPI()

    async def note(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            seen.append(scope["path"])
        await app(scope, receive, send)

    async with serving(note) as url:
        await answer_to(url, b"GET %b HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" % target)
    assert seen == [path]
    assert control_path(target) == path


@pytest.mark.parametrize(
    ("method", "path", "roles"),
    [
        (b"POST", "/runs/t/0/finish", {"proxy", "feedback", "runs", "admin"}),
        (b"POST", "/runs/a/b/0/finish", {"proxy", "feedback", "runs", "admin"}),
        (b"POST", "/runs/t/finish", {"proxy", "runs", "admin"}),  # opens runs of a task of this name
        (b"GET", "/runs/t/0/finish", {"proxy", "runs", "admin"}),
        (b"POST", "/runs/t/x/finish", {"proxy", "runs", "admin"}),
        (b"GET", "/commit", {"admin"}),
        (b"POST", "/commit/", {"admin"}),
        (b"DELETE", "/metrics", {"admin"}),
        (b"POST", "/status", {"admin"}),
        (b"GET", "/metrics\n", {"admin"}),
        (b"GET", "/metrics/", {"admin"}),
        (b"GET", "/feedbacks", {"admin"}),
        (b"GET", "/tasks/", {"feedback", "metrics", "viewer", "operator", "admin"}),  # no task has this name
        (b"POST", "/tasks", {"admin"}),
        (b"DELETE", "/tasks/t", {"admin"}),
        (b"GET", "/calls", {"admin"}),
        (b"POST", "/preferences/next", {"admin"}),
        (b"GET", "/preferences/export", {"admin"}),
        (b"GET", "/preferences/", {"admin"}),
        (b"DELETE", "/data", {"admin"}),
        (b"POST", "/rollouts/1/decide", {"admin"}),
        (b"POST", "/rollouts/1/2/promote", {"admin"}),
        (b"POST", "/rollouts\n", {"admin"}),
        (b"PUT", "/versions/8/keep", {"admin"}),
        (b"POST", "/aliases/champion", {"admin"}),
        (b"GET", "/serving/kill", {"admin"}),
        (b"GET", "", {"admin"}),
        (b"GET", "/nothing", {"admin"}),
    ],
)
def test_what_is_near_a_route_is_for_its_role_alone(method: bytes, path: str, roles: set[str]) -> None:
    assert set(roles_for(method, path)) == roles


async def test_the_facade_takes_its_own_key_or_an_admins(run_guarded: RunGuarded) -> None:
    async with run_guarded(facade={"api_key": "for trinity"}) as guarded:
        client = guarded.loop.client

        async def asked(**headers: str) -> httpx.Response:
            return await client.get("/explorer/v1/models", headers=headers)

        assert (await asked(authorization="Bearer for trinity")).status_code == 200
        assert (await client.get("/status", headers={"authorization": "Bearer for trinity"})).status_code == 401
        assert (await asked()).json()["error"]["code"] == "unauthorized"
        assert (await client.get("/explorer/v1/models", headers=guarded.key("admin"))).status_code == 200
        assert (await client.get("/explorer/v1/models", headers=guarded.key("proxy"))).status_code == 403
        assert (await client.get("/%65xplorer/v1/models")).status_code == 401


async def test_without_keys_everything_is_open(run_guarded: RunGuarded) -> None:
    async with run_guarded(access={"keys": []}) as guarded:
        assert (await guarded.loop.client.get("/status")).status_code == 200
        assert (await guarded.loop.client.get("/v1/models")).status_code == 200
        assert (await guarded.loop.client.get("/explorer/v1/models")).status_code == 200
