"""Promotions and steps by hand that take two persons."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from commands import slipstream
from loops import RunLoop
from rollout_plays import Play, plan, values
from scripted import ScriptedExplorer
from serving import serving, until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from slipstream.access.keys import as_hash, new_key
from slipstream.settings.sidecar import Settings
from slipstream.store.database import Database
from slipstream.store.rollouts import Verdict
from slipstream.store.states import RolloutState
from slipstream.store.tables.versions import VersionRow

PEOPLE = {"ann": "operator", "bob": "admin", "cid": "operator", "vic": "viewer"}
TWO = {"approval": "second_person"}


@pytest.fixture
async def lane(database: Database) -> AsyncIterator[dict[str, Any]]:
    """The section `serving` with a lane that shows step 12, and version 8 in the store."""
    async with database.write() as session:
        session.add(VersionRow(version=8, seen_at=1.0))
    await database.close()
    explorer = ScriptedExplorer()
    explorer.version = 12
    async with serving(explorer.app()) as url:
        yield {"mode": "on", "lane": {"base_url": f"{url}/v1"}}


async def test_one_asks_and_another_approves(run_loop: RunLoop, lane: dict[str, Any]) -> None:
    keys = {name: new_key() for name in PEOPLE}
    made = [{"name": name, "roles": [role], "hash": as_hash(keys[name])} for name, role in PEOPLE.items()]
    async with run_loop(serving=lane, rollouts=TWO, access={"keys": made}) as loop:

        async def ask(who: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
            headers = {"x-slipstream-key": keys[who]}
            response = await loop.client.request(method, path, headers=headers, json=body)
            return response.status_code, response.json()

        async def refused(who: str, path: str, body: Any = None) -> tuple[int, str]:
            status, answer = await ask(who, "POST", path, body)
            return status, answer["error"]["code"]

        async def seen(state: str) -> Any:
            _, found = await ask("vic", "GET", "/rollouts/1")
            return found if found["state"] == state else None

        switching = {"name": "new", "b": "version:8", "decision": "switch_traffic"}
        assert await refused("ann", "/experiments", switching) == (409, "second_person")
        step, promotion = {"action": "advance"}, {"action": "promote"}
        assert (await ask("ann", "POST", "/rollouts", {"version": 8}))[0] == 201
        await until(lambda: seen("running"))
        assert await refused("bob", "/rollouts/1/approve", step) == (409, "nothing_asked")
        assert await refused("ann", "/serving/share", {"version": 8, "share": 0.9}) == (409, "second_person")

        status, asked = await ask("ann", "POST", "/rollouts/1/advance")
        assert (status, asked["share"], asked["asked"]["by"], asked["asked"]["action"]) == (202, 0.05, "ann", "advance")
        status, answer = await ask("ann", "POST", "/rollouts/1/approve", step)
        assert (status, answer["error"]["code"]) == (409, "second_person")
        assert "ann has asked to advance, so another person has to approve it" in answer["error"]["message"]
        assert await refused("cid", "/rollouts/1/advance") == (409, "approval_waits")
        assert await refused("cid", "/rollouts/1/approve", promotion) == (409, "nothing_asked")
        assert await refused("cid", "/rollouts/1/approve", step | {"force": True}) == (409, "nothing_asked")
        assert await refused("vic", "/rollouts/1/approve", step) == (403, "slipstream_role_missing")
        status, advanced = await ask("cid", "POST", "/rollouts/1/approve", step)
        assert (status, advanced["share"], advanced["asked"]) == (200, 0.2, None)
        assert advanced["reason"].endswith("; asked for by ann, approved by cid")
        assert await refused("cid", "/rollouts/1/approve", step) == (409, "nothing_asked"), "it was carried out once"

        assert await refused("ann", "/rollouts/1/promote") == (409, "no_verdict")
        assert (await ask("ann", "POST", "/rollouts/1/promote", {"force": True}))[0] == 202
        assert (await ask("bob", "POST", "/rollouts/1/pause"))[1]["asked"] is None, "it was asked for before that"
        assert await refused("bob", "/rollouts/1/approve", promotion) == (409, "nothing_asked")
        _, asked = await ask("ann", "POST", "/rollouts/1/promote", {"force": True})
        status, unforced = await ask("bob", "POST", "/rollouts/1/approve", promotion)
        assert (status, unforced["error"]["code"]) == (409, "nothing_asked"), "he has not said that he means the force"
        assert unforced["error"]["param"] == "force"
        assert "promote by force, which ann asked for, waits" in unforced["error"]["message"]
        forced = promotion | {"force": True, "at": asked["asked"]["at"]}
        await ask("ann", "POST", "/rollouts/1/promote", {"force": True})
        assert await refused("bob", "/rollouts/1/approve", forced) == (409, "nothing_asked"), "an earlier request"
        bobs = ("--url", loop.url, "--key", keys["bob"])
        code, said, _ = await slipstream("rollout", "show", "1", *bobs)
        assert (code, "to promote version 8 by force, which another person has to approve" in said) == (0, True)
        [command] = re.findall(r"slipstream (rollout approve 1 promote --force --at [\d.]+)\n", said)
        await ask("ann", "POST", "/rollouts/1/promote", {"force": True})
        code, _, err = await slipstream(*command.split(), *bobs)
        assert (code, "at: expected a decision that waits" in err) == (2, True), "he has seen an earlier request"
        code, said, err = await slipstream("rollout", "approve", "1", "promote", "--force", *bobs)
        assert (code, said.splitlines()[0].startswith("ann asked at 20")) == (0, True), err
        assert said.splitlines()[0].endswith(" to promote version 8 by force")
        _, promoted = await ask("vic", "GET", "/rollouts/1")
        assert (promoted["state"], promoted["share"]) == ("promoted", 0.95)
        assert "by force" in promoted["reason"]
        assert promoted["reason"].endswith("; asked for by ann, approved by bob")
        _, audit = await ask("bob", "GET", "/audit")
        noted = [(one["action"], one["key"]) for one in audit["entries"] if one["key"] != "(decider)"]
        assert noted[:2] == [("rollout_promote", "bob"), ("rollout_ask", "ann")]
        assert (await ask("ann", "POST", "/rollouts/1/abort"))[1]["state"] == "aborted", "back takes one person"


async def test_the_command_approves_what_it_shows_and_nothing_that_is_asked_for_since() -> None:
    rollout = {"id": 1, "version": 8, "state": "running", "share": 0.2, "evidence": {}, "asked": None}
    approved = []

    async def show(_: Request) -> JSONResponse:
        return JSONResponse(rollout)

    async def approve(request: Request) -> JSONResponse:
        approved.append(await request.json())
        return JSONResponse({**rollout, "asked": None})

    routes = [Route("/rollouts/1", show), Route("/rollouts/1/approve", approve, methods=["POST"])]
    async with serving(Starlette(routes=routes)) as url:
        words = ("rollout", "approve", "1", "advance", "--url", url)
        code, _, err = await slipstream(*words)
        assert (code, err) == (2, "slipstream: rollout 1: nothing waits for approval\n")
        rollout["asked"] = {"action": "advance", "by": "ann", "at": 1795160052.1, "force": False}
        code, said, _ = await slipstream(*words)
    assert (code, "to advance version 8" in said.splitlines()[0]) == (0, True)
    assert approved == [{"action": "advance", "force": False, "at": 1795160052.1}]


def test_the_decider_leaves_a_promotion_to_two_persons() -> None:
    play = Play(plan())
    play.promotes = False
    play.units(4000, lambda drawn, treated: values(feedback=float(treated)))
    assert play.rollout.state is RolloutState.HOLDING
    assert Verdict.PROMOTE not in play.verdicts
    assert play.verdicts.count(Verdict.ADVANCE) == 3


def test_two_persons_need_keys() -> None:
    with pytest.raises(ValueError, match=r"access\.keys or access\.keys_file, by whose names persons are told apart"):
        Settings(rollouts=TWO)
