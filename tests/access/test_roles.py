"""Who may do what: each route with each role, and what spellings of an address change about it."""

from __future__ import annotations

import itertools
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from guarded import ROLES, RunGuarded, answer_to
from serving import serving

from slipstream.access.roles import control_path, roles_for

OPEN = {("GET", "/readyz"), ("GET", "/healthz")}

PROXY = {("POST", "/v1/chat/completions"), ("GET", "/v1/models")}
RUNS = {
    ("POST", "/runs/{task_id}"),
    ("GET", "/runs/{task_id}"),
    ("POST", "/runs/{task_id}/{run_id}/v1/chat/completions"),
    ("POST", "/runs/{task_id}/{run_id}/v1/responses"),
    ("POST", "/runs/{task_id}/{run_id}/v1/messages"),
    ("GET", "/runs/{task_id}/{run_id}/v1/models"),
}
COMMIT = {("POST", "/commit")}
BOTH = {("POST", "/runs/{task_id}/{run_id}/finish")}
FEEDBACK = {("POST", "/feedback"), ("GET", "/feedback/{feedback_id}"), ("POST", "/marks")}
READ = (
    "metrics",
    "status",
    "tasks",
    "serving",
    "rollouts",
    "experiments",
    "versions",
    "aliases",
    "preferences",
    "evaluations",
)
METRICS = {
    *(("GET", f"/{name}") for name in READ),
    ("GET", "/evaluations/{evaluation_id}"),
    *(
        ("GET", path)
        for path in (
            "/rollouts/{rollout_id}",
            "/experiments/{experiment_id}",
            "/versions/{version}",
            "/aliases/{name}/history",
        )
    ),
}
ANNOTATOR = {("GET", "/preferences/next"), ("POST", "/preferences")}
LOOKED_UP = {("GET", "/tasks/{task_id}"), ("GET", "/calls/{msg_id}")}
"""By who knows an id; `tests/test_task_routes.py` looks at what each key sees there."""

ALLOWED = {
    "proxy": PROXY | RUNS | BOTH,
    "feedback": FEEDBACK | BOTH | LOOKED_UP,
    "runs": RUNS | BOTH | COMMIT,
    "annotator": ANNOTATOR,
    "metrics": METRICS | LOOKED_UP,
}


def routes(schema: dict[str, Any]) -> list[tuple[str, str]]:
    """Every route of the sidecar, as docs/api.md names them."""
    own = [(method.upper(), path) for path, methods in schema["paths"].items() for method in methods]
    return [
        *own,
        ("GET", "/healthz"),
        ("GET", "/openapi.json"),
        ("POST", "/v1/chat/completions"),
        ("GET", "/v1/models"),
    ]


async def test_each_role_may_do_what_is_its_own_and_nothing_else(run_guarded: RunGuarded) -> None:
    async with run_guarded() as guarded:
        client = guarded.loop.client
        schema = (await client.get("/openapi.json", headers=guarded.key("admin"))).json()
        named = set(routes(schema))
        assert named >= PROXY | RUNS | COMMIT | BOTH | FEEDBACK | METRICS | LOOKED_UP | ANNOTATOR | OPEN, (
            "a route was renamed: rename it here as well"
        )
        wrong: list[str] = []
        for (method, path), role in itertools.product(sorted(named), ["nobody", *ROLES]):
            url = path.format(
                task_id="t",
                run_id=0,
                feedback_id="f",
                msg_id="m",
                rollout_id=1,
                experiment_id=1,
                path="p",
                version=0,
                name="n",
                evaluation_id=1,
            )
            headers = {} if role == "nobody" else guarded.key(role)
            response = await client.request(method, url, headers=headers, json={})
            refused = response.status_code in (401, 403) and "slipstream" in response.json()["error"]["code"]
            may = role == "admin" or (method, path) in OPEN | ALLOWED.get(role, set())
            if may is refused:
                wrong.append(f"{role} {method} {path}: {response.status_code}")
        assert wrong == []


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
        (b"GET", "/tasks/", {"feedback", "metrics", "admin"}),  # no task has this name
        (b"POST", "/tasks", {"admin"}),
        (b"DELETE", "/tasks/t", {"admin"}),
        (b"GET", "/calls", {"admin"}),
        (b"POST", "/preferences/next", {"admin"}),
        (b"GET", "/preferences/export", {"admin"}),
        (b"GET", "/preferences/", {"admin"}),
        (b"DELETE", "/data", {"admin"}),
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
