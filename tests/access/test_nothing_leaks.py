"""What the caller shows to production, and to us, reaches nobody else: the whole loop, and then a search for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from guarded import Kept, RunGuarded
from scripted import ScriptedExplorer, completion
from serving import serving, until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from slipstream.access.keys import as_hash, new_key

CALLERS = "sk-callers-own-0123456789abcdef"
AZURE = "azure-callers-own-0123456789abcdef"
COOKIE = "session-of-the-caller-0123456789"


def store_of(folder: Path) -> str:
    """All bytes of the store's files."""
    return "".join(file.read_bytes().decode("latin-1") for file in folder.glob("slipstream.db*"))


async def test_only_production_sees_the_callers_keys(
    run_guarded: RunGuarded, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Shadow calls, an agent replay, the facade, a judge and a reward webhook, feedback and a commit."""
    judge, webhook = Kept(), Kept()

    async def score(request: Request) -> JSONResponse:
        await request.json()
        return JSONResponse({"reward": 0.5})

    async def verdict(request: Request) -> JSONResponse:
        return JSONResponse(completion("judged", json.dumps({"good": 3})))

    explorer = ScriptedExplorer()
    seen = Kept()
    explorer_app = explorer.app
    explorer.app = lambda: seen.wrap(explorer_app())  # type: ignore[method-assign, assignment]
    judging = judge.wrap(Starlette(routes=[Route("/v1/chat/completions", verdict, methods=["POST"])]))
    calling = webhook.wrap(Starlette(routes=[Route("/score", score, methods=["POST"])]))
    async with serving(judging) as judge_url, serving(calling) as webhook_url:
        calculators = [
            {"judge": {"base_url": f"{judge_url}/v1", "model": "j", "criteria": {"good": "Is it?"}, "weight": 0.5}},
            {"webhook": {"url": f"{webhook_url}/score", "allow_private": True, "weight": 0.5}},
        ]
        async with run_guarded(explorer, rewards={"calculators": calculators}) as guarded:
            client, key = guarded.loop.client, guarded.keys["admin"]
            client.headers.update(
                {"authorization": f"Bearer {CALLERS}", "api-key": AZURE, "cookie": COOKIE, "X-Slipstream-Key": key}
            )
            answer = await guarded.loop.chat("hello", {"x-slipstream-task-id": "t"})
            await client.post("/feedback", json={"msg_id": answer["id"], "thumbs": "up"})
            await client.post("/runs/again", json={"runs": 1})
            chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
            assert (await client.post("/runs/again/0/v1/chat/completions", json=chat)).status_code == 200
            assert (await client.get("/runs/again/0/v1/models")).status_code == 200
            await client.post("/runs/again/0/finish", json={"reward": 0.5})
            assert (await client.post("/explorer/v1/chat/completions", json=chat)).status_code == 200
            await until(lambda: judge.heads and webhook.heads, 30)
            await until(lambda: guarded.loop.ready(2), 30)
            await guarded.loop.commit()
            told = json.dumps(await guarded.loop.status()) + (await client.get("/metrics")).text
            told += (await client.get("/tasks/t")).text

            assert guarded.production.values(b"authorization") == [f"Bearer {CALLERS}".encode()]
            assert guarded.production.values(b"api-key") == [AZURE.encode()]
            assert guarded.production.values(b"cookie") == [COOKIE.encode()]
            assert b"slp_" not in repr(guarded.production.heads).encode()
            secrets = [CALLERS, AZURE, COOKIE, *guarded.keys.values()]
    assert seen.heads
    logs = "".join(capfd.readouterr())
    for who, said in {
        "the Explorer": repr(seen.heads) + repr(seen.targets),
        "the judge": repr(judge.heads),
        "the webhook": repr(webhook.heads),
        "status, metrics and tasks": told,
        "the log": logs,
        "the store": store_of(tmp_path),
    }.items():
        for secret in secrets:
            assert secret not in said, who


async def test_a_key_with_capture_false_is_answered_and_never_stored(run_guarded: RunGuarded) -> None:
    private, usual, admin = new_key(), new_key(), new_key()
    keys = [
        {"name": "private", "roles": ["proxy"], "hash": as_hash(private), "capture": False},
        {"name": "usual", "roles": ["proxy"], "hash": as_hash(usual)},
        {"name": "admin", "roles": ["admin"], "hash": as_hash(admin)},
    ]
    async with run_guarded(access={"keys": keys}) as guarded:
        loop = guarded.loop
        await loop.chat("hello", {"x-slipstream-key": private, "x-slipstream-task-id": "private"})
        await loop.chat("hello", {"x-slipstream-key": usual, "x-slipstream-task-id": "usual"})
        loop.client.headers["x-slipstream-key"] = admin
        await until(lambda: loop.task("usual"))
        assert await loop.task("private") is None


async def test_forwarded_addresses_are_believed_from_trusted_proxies_alone(run_guarded: RunGuarded) -> None:
    said = {"x-forwarded-for": "203.0.113.9", "Forwarded": "for=203.0.113.9", "x-real-ip": "203.0.113.9"}

    async def sent(*trusted: str) -> list[bytes]:
        async with run_guarded(access={"trusted_proxies": list(trusted)}) as guarded:
            await guarded.loop.client.get("/v1/models", headers={**said, **guarded.key("proxy"), "x-other": "1"})
            assert guarded.production.values(b"x-other") == [b"1"]
            return [name for name, value in guarded.production.heads[-1] if b"203.0.113.9" in value]

    everything = [b"x-forwarded-for", b"forwarded", b"x-real-ip"]
    assert await sent() == everything, "byte for byte"
    assert await sent("10.0.0.0/8") == []
    assert await sent("10.0.0.0/8", "127.0.0.1") == everything
