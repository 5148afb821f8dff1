"""An evaluation that was cut off goes on with the answers that are missing, and with no other."""

from __future__ import annotations

import signal
import sqlite3
from pathlib import Path

import httpx
import pytest
from evaluated import EXACT, Knowing, asked, ended, serves, suite, write_cases
from loops import RunLoop
from scripted import production_app
from serving import serving, until
from sidecar_process import SidecarProcess
from stores import ON_BOTH_STORES

CASES = 24


@pytest.mark.slow
async def test_after_kill_9_the_missing_answers_are_asked_for_and_no_other(tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", CASES)
    explorer = Knowing(*range(0, CASES, 2))
    async with (
        serving(production_app()) as production_url,
        serving(explorer.app()) as explorer_url,
        httpx.AsyncClient(timeout=10) as client,
    ):
        sidecar = SidecarProcess(
            tmp_path, production_url, explorer_url, rewards=EXACT, evaluation=suite(cases, production="prod")
        )
        client.base_url = httpx.URL(sidecar.url)
        explorer.version = 1
        await sidecar.start()

        async def known() -> bool:
            return (await client.get("/versions/1")).status_code == 200

        await until(known, 20)
        assert (await client.post("/evaluations", json={})).status_code == 201
        for goal in (6, 14):
            await until(lambda goal=goal: len(explorer.chats) >= goal, 60)
            await sidecar.die("everything")

        async def over() -> bool:
            return bool((await client.get("/evaluations/1")).json()["ended_at"])

        await until(over, 60)
        found = (await client.get("/evaluations/1")).json()
        await sidecar.end(signal.SIGTERM)
    assert (found["state"], found["answered"]) == ("done", 2 * CASES)
    assert found["result"]["version"]["reward"]["mean"] == 0.5
    assert found["result"]["against_production"]["cases"] == CASES
    assert len(explorer.chats) <= CASES + 2 * 4, "at most what was under way is asked again"
    with sqlite3.connect(sidecar.store) as store:
        assert store.execute("SELECT count(*) FROM evaluation_answers").fetchone() == (2 * CASES,)
    store.close()


@pytest.mark.slow
@ON_BOTH_STORES
async def test_one_whose_cases_changed_meanwhile_fails_in_words(run_loop: RunLoop, tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 3)
    explorer = Knowing()
    async with run_loop(explorer, rewards=EXACT, evaluation=suite(cases)) as loop:
        await serves(loop, 1)
        explorer.hold.clear()
        number = (await asked(loop))["id"]
        await until(lambda: len(explorer.chats) == 3)
    explorer.hold.set()
    write_cases(cases, 2)
    async with run_loop(explorer, rewards=EXACT, evaluation=suite(cases)) as loop:
        found = await ended(loop, number)
        assert found["state"] == "failed"
        assert "1 cases changed since the evaluation began, 'c2' for one" in found["reason"]


@pytest.mark.slow
async def test_one_whose_parameters_changed_meanwhile_is_asked_with_those_it_began_with(
    run_loop: RunLoop, tmp_path: Path
) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 3)
    explorer = Knowing()
    async with run_loop(explorer, rewards=EXACT, evaluation=suite(cases, parameters={"max_tokens": 100})) as loop:
        await serves(loop, 1)
        explorer.hold.clear()
        number = (await asked(loop))["id"]
        await until(lambda: len(explorer.chats) == 3)
    explorer.hold.set()
    async with run_loop(explorer, rewards=EXACT, evaluation=suite(cases, parameters={"max_tokens": 20})) as loop:
        found = await ended(loop, number)
        assert found["settings"]["parameters"] == {"max_tokens": 100}
        assert [chat["max_tokens"] for chat in explorer.chats] == [100] * 6
