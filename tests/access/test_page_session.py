"""The page's session: a key is exchanged for a cookie, which has the key's rights and ends with it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import trustme
import yaml
from authorities import Authority
from guarded import RunGuarded
from scripted import ScriptedExplorer
from serving import until
from shared_by_tenants import RunShared
from sidecars_sharing import sidecars
from signing_in import PAGE, browser, code_of
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from stores import ON_BOTH_STORES, stored_rows
from test_nothing_leaks import store_of

from slipstream.access.keys import as_hash, new_key
from slipstream.access.page_session import cookie_name, hash_of, taken_apart
from slipstream.access.scope import LEAST
from slipstream.proxy.request import Request
from slipstream.proxy.upstreams import control_route
from slipstream.store import page_sessions
from slipstream.store.database import Database
from slipstream.store.page_sessions import PageSession

SIGNED_OUT = {
    "signed_in": False, "keys_needed": True, "key": None, "roles": [], "tenant": None, "content": False,
    "expires_at": None,
}  # fmt: skip


def set_cookie(answer: httpx.Response) -> list[str]:
    return [part.strip() for part in answer.headers["set-cookie"].split(";")]


@pytest.mark.slow
async def test_each_role_does_in_its_session_what_its_key_may(run_guarded: RunGuarded, store_url: str) -> None:
    may = {
        "admin": {"/status", "/audit", "/openapi.json", "/preferences/next?annotator=ann"},
        "operator": {"/status"},
        "viewer": {"/status"},
        "metrics": {"/status"},
        "annotator": {"/preferences/next?annotator=ann"},
        "feedback": set(),
        "runs": set(),
        "proxy": set(),
    }
    asked = set().union(*may.values())
    async with run_guarded() as guarded:
        url = guarded.loop.url
        for role, key in guarded.keys.items():
            async with browser(url, key) as page:
                told = (await page.get("/session")).json()
                assert (told["key"], told["roles"], told["content"]) == (role, [role], role == "admin")
                assert told["tenant"] == (None if role in ("admin", "operator") else "default")
                assert 12 * 3600 - 60 < told["expires_at"] - time.time() <= 12 * 3600
                assert [(await page.get(path)).status_code for path in ("/", "/ui/app.js")] == [200, 200], role
                answers = {path: await page.get(path) for path in asked}
                assert {path for path, answer in answers.items() if answer.status_code == 200} == may[role], role
                refused = {code_of(answer) for path, answer in answers.items() if path not in may[role]}
                assert refused <= {"slipstream_role_missing"}
                kill = await page.post("/serving/kill")
                assert (kill.status_code == 200) is (role in ("admin", "operator")), kill.text
                if role == "viewer":
                    by_key = await guarded.loop.client.post("/serving/kill", headers=guarded.key("viewer"))
                    assert kill.json() == by_key.json(), "a session is refused as its key is"
                for path in ("/v1/models", "/runs/t", "/explorer/health", "/v%31/models"):
                    assert code_of(await page.get(path)) == "slipstream_key_missing", "agents send keys"
        async with browser(url, guarded.keys["admin"]) as page:
            entries = (await page.get("/audit")).json()["entries"]
        assert {each["key"] for each in entries if each["action"] == "serving_kill"} == {"admin", "operator"}
        assert {each["key"] for each in entries if each["action"] == "sign_in"} == set(guarded.keys)
    rows = await stored_rows(store_url, "SELECT * FROM page_sessions")
    assert len(rows) == len(may) + 1
    assert "slp_" not in repr(rows), "the store has hashes"


async def test_the_cookie_is_for_the_page_of_this_sidecar_alone(run_guarded: RunGuarded) -> None:
    async with run_guarded() as guarded, browser(guarded.loop.url) as page:
        port = httpx.URL(guarded.loop.url).port
        assert (await page.get("/session")).json() == SIGNED_OUT
        answer = await page.post("/session", headers=guarded.key("viewer"))
        assert answer.headers["cache-control"] == "no-store"
        pair, *flags = set_cookie(answer)
        name, _, token = pair.partition("=")
        assert name == f"slipstream_session_{port}"
        assert len(token.removeprefix("slp_session_")) == 43
        assert sorted(flags) == ["HttpOnly", "Max-Age=43200", "SameSite=strict"], "and no Path"
        for host in ("localhost:1234", "other.example"):
            there = await page.get("/session", headers={"host": host, "cookie": pair})
            assert there.json() == SIGNED_OUT, "another port's sidecar has a cookie of its own"
        # a cookie for everything behind a name, and that of this page, which browsers send first
        both = {"cookie": f"{pair}; a=b; {name}=slp_session_{'x' * 43}"}
        assert (await page.get("/status", headers=both)).status_code == 200


async def test_the_cookie_goes_by_tls_alone_where_it_came_by_tls(run_guarded: RunGuarded, tmp_path: Path) -> None:
    said = [{"x-forwarded-proto": "https"}, {"forwarded": 'for=10.0.0.1;proto="https"'}, {"x-forwarded-proto": "http"}]

    async def secure(headers: list[dict[str, str]], **how: Any) -> list[bool]:
        async with run_guarded(**how) as guarded:
            key = guarded.key("viewer")
            answers = [await guarded.loop.client.post("/session", headers={**each, **key}) for each in headers]
            return ["Secure" in set_cookie(answer) for answer in answers]

    assert await secure(said) == [False, False, False], "nobody is trusted to say so"
    assert await secure(said, access={"trusted_proxies": ["127.0.0.1"]}) == [True, True, False]
    authority = Authority(trustme.CA(), tmp_path)
    listen = {"host": "127.0.0.1", "port": 0, "tls": authority.issue()}
    assert await secure([{}], verify=authority.client(), listen=listen) == [True]


async def test_a_sign_out_ends_the_session_and_no_other(run_guarded: RunGuarded, store_url: str) -> None:
    async with run_guarded() as guarded:
        url, admin = guarded.loop.url, guarded.keys["admin"]
        async with browser(url, admin) as one, browser(url, admin) as other:
            kept = dict(one.cookies)
            answer = await one.delete("/session")
            assert answer.json() == SIGNED_OUT
            assert "Max-Age=0" in set_cookie(answer)
            assert not one.cookies
            stolen = {"cookie": "; ".join(f"{name}={value}" for name, value in kept.items())}
            refused = await one.get("/status", headers=stolen)
            assert (refused.status_code, code_of(refused)) == (401, "slipstream_session_ended")
            assert refused.headers["www-authenticate"] == "Bearer", "of Basic the browser would ask for a password"
            told = await one.get("/session", headers=stolen)
            assert told.json() == SIGNED_OUT
            assert "Max-Age=0" in set_cookie(told), "the browser forgets it"
            assert (await one.delete("/session", headers=stolen)).json() == SIGNED_OUT
            assert (await other.get("/status")).status_code == 200
            outs = (await other.get("/audit?action=sign_out")).json()["entries"]
            assert [each["key"] for each in outs] == ["admin"]
            # another sign-in of a browser takes the place of its last one
            assert (await other.post("/session", headers={"x-slipstream-key": admin})).status_code == 200
            assert len(await stored_rows(store_url, "SELECT 1 FROM page_sessions")) == 1


async def test_a_session_ends_in_time_and_no_later_than_its_key(
    run_guarded: RunGuarded, store_url: str, tmp_path: Path
) -> None:
    soon, far = datetime.now(UTC) + timedelta(seconds=90), datetime.now(UTC) + timedelta(days=1)
    keys = {name: new_key() for name in ("soon", "far", "moved", "other")}

    def entry(name: str, key: str, expires: datetime | None = None) -> dict[str, Any]:
        until = {} if expires is None else {"expires": expires.isoformat()}
        return {"name": name, "roles": ["viewer"], "hash": as_hash(key), **until}

    file = tmp_path / "keys.yaml"
    file.write_text(yaml.safe_dump([entry("moved", keys["moved"]), entry("far", keys["far"], far)]))
    access = {"keys": [entry("soon", keys["soon"], soon)], "keys_file": str(file), "session": "10m"}
    async with run_guarded(access=access) as guarded:
        url = guarded.loop.url
        async with (
            browser(url, keys["soon"]) as one,
            browser(url, keys["far"]) as two,
            browser(url, keys["moved"]) as three,
        ):
            assert (await one.get("/session")).json()["expires_at"] == pytest.approx(soon.timestamp())
            assert (await two.get("/session")).json()["expires_at"] == pytest.approx(time.time() + 600, abs=60)

            async def code(page: httpx.AsyncClient) -> str | None:
                return code_of(await page.get("/status"))

            assert [await code(page) for page in (one, two, three)] == [None] * 3
            # another key of the name, a time that has passed: nothing is left of what was there before
            past = entry("far", keys["far"], datetime.now(UTC) - timedelta(days=1))
            file.write_text(yaml.safe_dump([entry("moved", keys["other"]), past]))

            async def ended() -> bool:
                return await code(three) == await code(two) == "slipstream_session_ended"

            await until(ended)
            assert await code(one) is None
            beside = create_async_engine(store_url)
            async with beside.begin() as connection:
                await connection.execute(text("UPDATE page_sessions SET expires_at = 1.0"))
            await beside.dispose()
            assert await code(one) == "slipstream_session_ended"
        wrong = await guarded.loop.client.post("/session", headers={"x-slipstream-key": new_key(), **PAGE})
        assert (wrong.status_code, code_of(wrong)) == (401, "slipstream_key_unknown")
        assert wrong.headers["www-authenticate"] == "Bearer"
        assert code_of(await guarded.loop.client.post("/session")) == "slipstream_key_missing"


async def test_sessions_of_tenants_see_what_is_theirs(run_shared: RunShared) -> None:
    async with run_shared() as shared:
        await shared.chat("agent-a", "I am of A", task_id="order-1")
        await shared.stored(1)
        for name, tenant, found in (("admin-a", "acme", 200), ("admin-b", "beta", 404), ("admin", None, 200)):
            async with browser(shared.loop.url, shared.keys[name]) as page:
                assert (await page.get("/session")).json()["tenant"] == tenant
                assert (await page.get("/tasks/order-1")).status_code == found
                named = await page.get("/tasks/order-1", headers={"x-slipstream-tenant": "acme"})
                assert named.status_code == (403 if name == "admin-b" else 200)


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
async def test_a_session_holds_at_each_sidecar_of_a_store(store_url: str) -> None:
    """They share nothing else, as a sidecar shares with itself after a restart."""
    key = new_key()
    access = {"keys": [{"name": "ops", "roles": ["viewer"], "hash": as_hash(key)}]}
    async with sidecars(store_url, ScriptedExplorer(), access=access) as (one, two), browser(one.url, key) as page:
        ((_, token),) = page.cookies.items()
        at_two = {"cookie": f"slipstream_session_{httpx.URL(two.url).port}={token}"}
        assert (await two.client.get("/status", headers=at_two)).status_code == 200
        assert (await two.client.delete("/session", headers=at_two)).status_code == 200
        assert code_of(await page.get("/status")) == "slipstream_session_ended"


async def test_nobody_but_the_browser_has_the_cookie(
    run_guarded: RunGuarded, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with run_guarded(log={"level": "debug"}) as guarded:
        async with browser(guarded.loop.url, guarded.keys["admin"]) as page:
            ((name, token),) = page.cookies.items()
            chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
            agents = {**guarded.key("proxy"), "cookie": f"theme=dark; {name}={token}; lang=en", "x-other": "1"}
            sent = await page.post("/v1/chat/completions", json=chat, headers=agents)
            assert sent.status_code == 200
            assert guarded.production.values(b"cookie") == [b"theme=dark; lang=en"], "other cookies are not ours"
            only = {**guarded.key("proxy"), "cookie": f"{name}={token}", "x-slipstream-task-id": "t"}
            await page.post("/v1/chat/completions", json=chat, headers=only)
            assert guarded.production.values(b"cookie") == []

            async def stored() -> bool:
                return (await page.get("/tasks/t")).status_code == 200

            await until(stored)
            told = (await page.get("/tasks/t")).text + (await page.get("/status")).text
        assert token not in repr(guarded.production.heads)
    assert token not in told + "".join(capfd.readouterr()) + store_of(tmp_path)


async def test_a_keyless_sidecar_signs_everybody_in_and_passes_no_session_of_another_on(
    run_guarded: RunGuarded,
) -> None:
    async with run_guarded(access={"keys": []}) as guarded, browser(guarded.loop.url) as page:
        for method in ("GET", "POST", "DELETE"):
            answer = await page.request(method, "/session")
            assert answer.json() == {
                "signed_in": True, "keys_needed": False, "key": None, "roles": ["admin"], "tenant": None,
                "content": True, "expires_at": None,
            }  # fmt: skip
            assert "set-cookie" not in answer.headers
        of_another = {"cookie": f"a=b; slipstream_session_8100=slp_session_{'x' * 43}"}
        await page.get("/v1/models", headers=of_another)
        assert guarded.production.values(b"cookie") == [b"a=b"]


@pytest.mark.slow
async def test_a_session_has_its_keys_rate(run_guarded: RunGuarded) -> None:
    key = new_key()
    made = [{"name": "slow", "roles": ["viewer"], "hash": as_hash(key), "requests_per_minute": 8}]
    async with run_guarded(access={"keys": made}) as guarded, browser(guarded.loop.url, key) as page:
        answers = [await page.get("/status") for _ in range(18)]  # of which a minute may begin
        assert answers[0].status_code == 200
        assert answers[-1].status_code == 429
        assert code_of(answers[-1]) == "slipstream_rate_limit"
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 60


async def test_the_page_needs_no_key_and_nothing_beside_it_is_open(run_guarded: RunGuarded) -> None:
    async with run_guarded() as guarded:
        client = guarded.loop.client
        for path in ("/", "/ui/app.js", "/ui/vendor/preact.js", "/%75i/app.js"):
            assert (await client.get(path)).status_code == 200, path
        for method, path in (("POST", "/"), ("PUT", "/ui/app.js"), ("GET", "/ui"), ("GET", "/uix/a")):
            answer = await client.request(method, path)
            assert code_of(answer) == "slipstream_key_missing", (method, path)


@ON_BOTH_STORES
async def test_a_key_has_so_many_sessions_and_the_oldest_goes(database: Database, monkeypatch: Any) -> None:
    monkeypatch.setattr(page_sessions, "_MOST", 3)
    for number in range(5):
        async with database.write() as session:
            await page_sessions.add(session, PageSession(str(number), "a", "hash of a", 90.0), float(number))
            await page_sessions.add(session, PageSession(f"b{number}", "a", f"hash of b{number}", 90.0), 0.0)
    async with database.read() as session:
        found = [await page_sessions.find(session, str(number), 89.0) for number in range(5)]
        assert [each is not None for each in found] == [False, False, True, True, True]
        assert await page_sessions.find(session, "4", 90.0) is None
        assert await page_sessions.find(session, "b0", 89.0) is not None
    async with database.write() as session:
        assert await page_sessions.delete_expired(session, 89.0, 9) == 0
        assert await page_sessions.delete_expired(session, 90.0, 5) == 5
        await page_sessions.end_all(session)


def test_a_training_side_that_knows_no_sessions_has_no_route_for_what_a_worker_sends_for_one() -> None:
    """A release of before would take the scope of a session for that of a caller who may do what it asks for."""
    request = Request(b"DELETE", b"/data?session_id=s", [], http11=True, keep_alive=True)
    request.scope = msgspec.structs.replace(LEAST, session=hash_of(b"token"))
    head, _ = control_route(Path("socket")).head(request)
    assert head.startswith(b"DELETE /by-session/data?session_id=s HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("value", "sessions", "rest"),
    [
        (b"a=b", 0, b"a=b"),
        (b"a=b; slipstream_session_8100=%b; c=d", 1, b"a=b; c=d"),
        (b"slipstream_session=%b", 1, b""),
        (b"slipstream_session_8100=short; a", 0, b"a"),
        (b"slipstream_session_8100=%b; slipstream_session_8200=%b", 2, b""),
        (b"slipstream_session_8100=%b; slipstream_session_8100=", 1, b""),
        (b";;=;", 0, b";;=;"),
    ],
)
def test_a_cookie_is_taken_apart(value: bytes, sessions: int, rest: bytes) -> None:
    found = taken_apart(value.replace(b"%b", b"slp_session_" + b"x" * 43))
    assert (len(found.sessions), found.rest) == (sessions, rest)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        (b"localhost:8100", b"slipstream_session_8100"),
        (b"[::1]:8100", b"slipstream_session_8100"),
        (b"[::1]", b"slipstream_session"),
        (b"page.example", b"slipstream_session"),
        (b"a:b; Path=/", b"slipstream_session"),
        (b"", b"slipstream_session"),
    ],
)
def test_the_cookies_name_has_the_port(host: bytes, name: bytes) -> None:
    assert cookie_name(host) == name
