"""Evaluations through the running sidecar: asked for, carried out, scored, compared, and never delivered."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from evaluated import EXACT, Knowing, asked, ended, evaluated, serves, shown, suite, verdict, write_cases
from loops import Loop, RunLoop
from serving import until
from sqlalchemy import delete
from stores import ON_BOTH_STORES, stored_rows

from slipstream.store import budget
from slipstream.store.database import Database
from slipstream.store.tables.sidecars import SpentRow


@ON_BOTH_STORES
async def test_a_version_is_evaluated_and_compared_with_production_case_by_case(
    run_loop: RunLoop, tmp_path: Path, store_url: str
) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 30)
    explorer = Knowing(0, 1, 2)
    async with run_loop(explorer, rewards=EXACT, evaluation=suite(cases, production="prod")) as loop:
        found = await evaluated(loop, 3)
        assert (found["state"], found["used"], found["server"]) == ("done", True, "explorer")
        result = found["result"]
        assert result["version"]["reward"] == {
            "mean": 0.1, "std": 0.305129, "standard_error": 0.055709, "count": 30, "sessions": 30,
        }  # fmt: skip
        assert result["version"]["components"]["exact_match"]["mean"] == 0.1
        assert result["version"]["success_rate"] == 0.1
        assert result["version"]["answers"] == {"scored": 30}
        assert result["production"]["reward"]["mean"] == 1
        assert result["against_production"]["verdict"] == "worse"
        assert result["against_production"]["difference"] == -0.9
        assert [case["case"] for case in found["cases"]][:2] == ["c0", "c1"]
        assert found["cases"][0]["version"][0]["reward"] == 1
        assert found["answered"] == found["expected"] == 60
        assert (await verdict(loop, 3))["production"] == "worse"
        assert (await loop.client.get("/versions/3")).json()["state"] == "tested"
        assert explorer.ready == 0, "no reward of it is delivered"
        assert await stored_rows(store_url, "SELECT * FROM runs") == []
        text = (await loop.client.get("/metrics")).text
        assert 'slipstream_version_verdict{place="explorer",verdict="worse"} 1.0' in text
        assert 'slipstream_evaluations_total{state="done"} 1.0' in text


@pytest.mark.slow
async def test_without_a_comparison_there_is_not_enough_data(run_loop: RunLoop, tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 4)
    async with run_loop(Knowing(1), rewards=EXACT, evaluation=suite(cases)) as loop:
        found = await evaluated(loop, 1)
        assert found["result"]["production"] is None
        assert found["result"]["version"]["reward"]["mean"] == 0.25
        assert await verdict(loop, 1) == {
            "verdict": "not_enough_data", "production": "not_enough_data", "champion": None, "sources": [],
        }  # fmt: skip


@pytest.mark.slow
async def test_few_cases_say_how_many_sessions_are_missing(run_loop: RunLoop, tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 4)
    async with run_loop(Knowing(1, 2, 3), rewards=EXACT, evaluation=suite(cases, production="prod")) as loop:
        against = (await evaluated(loop, 1))["result"]["against_production"]
        assert against["verdict"] == "not_enough_data"
        assert 0 < against["missing"]["sessions"] < 100
        assert against["missing"]["cases"] == against["missing"]["sessions"]


@pytest.mark.slow
async def test_versions_are_compared_with_the_champion_on_the_same_cases(run_loop: RunLoop, tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 30)
    explorer = Knowing(0)
    async with run_loop(explorer, rewards=EXACT, evaluation=suite(cases)) as loop:
        await evaluated(loop, 1)
        await loop.client.put("/aliases/champion", json={"version": 1})
        explorer.knows = set(range(25))
        await evaluated(loop, 2)
        found = await verdict(loop, 2)
        assert (found["verdict"], found["champion"]) == ("better", "better")
        [source] = found["sources"]
        assert (source["against"], source["champion"], source["sessions"]) == ("champion", 1, 30)
        assert (await verdict(loop, 1))["champion"] is None, "it is the champion"
        listed = (await loop.client.get("/versions")).json()["versions"]
        assert [one["verdict"]["champion"] for one in listed if one["version"]] == ["better", None]


@pytest.mark.slow
async def test_cases_of_one_session_count_once(run_loop: RunLoop, tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 30, session="one")
    async with run_loop(Knowing(), rewards=EXACT, evaluation=suite(cases, production="prod")) as loop:
        result = (await evaluated(loop, 1))["result"]
        assert result["version"]["reward"]["standard_error"] is None
        assert (result["against_production"]["sessions"], result["against_production"]["cases"]) == (1, 30)
        assert result["against_production"]["verdict"] == "not_enough_data"


@pytest.mark.slow
async def test_cases_are_asked_as_often_as_the_suite_says_with_its_parameters(
    run_loop: RunLoop, tmp_path: Path
) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 3)
    explorer = Knowing(0)
    section = suite(cases, repeat=4, parameters={"temperature": 0.5})
    async with run_loop(explorer, rewards=EXACT, evaluation=section) as loop:
        found = await evaluated(loop, 1)
        assert found["result"]["version"]["answers"] == {"scored": 12}
        assert found["result"]["version"]["reward"]["count"] == 3
        assert {chat["temperature"] for chat in explorer.chats} == {0.5}
        assert {chat["model"] for chat in explorer.chats} == {"/models/policy"}


@pytest.mark.slow
@ON_BOTH_STORES
async def test_a_version_that_changes_meanwhile_is_not_used(run_loop: RunLoop, tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 20)
    explorer = Knowing(*range(20))
    async with run_loop(explorer, rewards=EXACT, evaluation=suite(cases, production="prod")) as loop:
        await serves(loop, 1)
        explorer.hold.clear()
        number = (await asked(loop))["id"]
        await until(lambda: explorer.chats)
        explorer.version = 2
        explorer.hold.set()
        found = await ended(loop, number)
        assert (found["state"], found["used"], found["result"]) == ("changed", False, None)
        assert "version 1 was not served any more" in found["reason"]
        assert found["cases"][0]["version"] == [], "an answer of unknown version has no value"
        assert (await verdict(loop, 1))["sources"] == []


@pytest.mark.slow
async def test_a_version_that_no_server_has_is_refused_in_words(run_loop: RunLoop, tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 2)
    async with run_loop(Knowing(), rewards=EXACT, evaluation=suite(cases)) as loop:
        await serves(loop, 1)
        await serves(loop, 2)
        assert await refused(loop, version=1) == (
            409, "version", "version 1: expected one that is served, so that it can be asked; the Explorer serves 2",
        )  # fmt: skip
        assert (await refused(loop, version=9))[:2] == (404, "version")
        assert (await refused(loop, version="champion"))[:2] == (404, "version")
        assert (await refused(loop, suite="none"))[:2] == (404, "suite")


@pytest.mark.slow
async def test_without_suites_or_calculators_the_reason_is_told(run_loop: RunLoop, tmp_path: Path) -> None:
    async with run_loop() as loop:
        assert "evaluation.suites" in (await refused(loop))[2]
    cases = write_cases(tmp_path / "cases.jsonl", 2)
    agreement = {"calculators": ["agreement", {"feedback": {"default": 0}}]}
    async with run_loop(Knowing(), rewards=agreement, evaluation=suite(cases)) as loop:
        await serves(loop, 0)
        status, param, message = await refused(loop)
        assert (status, param) == (422, "suite")
        assert "expected one that judges each answer by itself" in message
        assert message.endswith("found agreement, feedback")


async def test_a_file_with_bad_lines_is_refused_with_each_line(run_loop: RunLoop, tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"id": "a", "prompt": "x"}\n{"id": "b"}\n')
    async with run_loop(Knowing(), rewards=EXACT, evaluation=suite(cases)) as loop:
        await serves(loop, 0)
        status, param, message = await refused(loop)
        assert (status, param) == (422, "suite")
        assert f"{cases}: line 2: " in message
        assert "exactly one of messages, prompt, found none" in message


@pytest.mark.slow
async def test_an_answer_that_is_refused_has_the_lowest_value(run_loop: RunLoop, tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 4)
    explorer = Knowing(*range(4))
    explorer.faults["/v1/chat/completions"] = [400]
    async with run_loop(explorer, rewards=EXACT, evaluation=suite(cases)) as loop:
        result = (await evaluated(loop, 1))["result"]
        assert result["version"]["answers"] == {"failed": 1, "scored": 3}
        assert result["version"]["reward"]["mean"] == 0.75


@pytest.mark.slow
async def test_where_production_does_not_answer_the_evaluation_fails_in_words(
    run_loop: RunLoop, tmp_path: Path
) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 2)
    section = suite(cases, production="prod")
    away = {"production": {"base_url": "http://127.0.0.1:9/v1"}, "runs": {"max_attempts": 1}}
    async with run_loop(Knowing(), rewards=EXACT, evaluation=section, **away) as loop:
        found = await evaluated(loop, 1)
        assert (found["state"], found["used"]) == ("failed", False)
        assert found["reason"] == "production did not give 2 of 2 answers of the arm production"


@pytest.mark.slow
async def test_an_explorer_that_goes_away_is_waited_for(run_loop: RunLoop, tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 3)
    explorer = Knowing(*range(3))
    async with run_loop(explorer, rewards=EXACT, evaluation=suite(cases)) as loop:
        await serves(loop, 1)
        explorer.hold.clear()
        number = (await asked(loop))["id"]
        await until(lambda: len(explorer.chats) == 3)
        explorer.faults["/metrics"] = [503] * 12
        explorer.hold.set()
        found = await ended(loop, number)
        assert found["result"]["version"]["answers"] == {"scored": 3}


@pytest.mark.slow
async def test_no_more_is_asked_than_the_hours_budget(run_loop: RunLoop, tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 8)
    explorer = Knowing()
    section = {**suite(cases, production="prod"), "calls_per_hour": 5, "concurrency": 2}
    async with run_loop(explorer, rewards=EXACT, evaluation=section) as loop:
        await serves(loop, 1)
        number = (await asked(loop))["id"]

        async def waits() -> bool:
            return bool((await shown(loop, number))["waits"] == "the budget of the hour is spent")

        await until(waits)
        found = await shown(loop, number)
        assert (found["state"], found["answered"]) == ("running", 5)
        text = (await loop.client.get("/metrics")).text
        assert 'slipstream_budget_spent{kind="requests",purpose="evaluation"} 5.0' in text


@pytest.mark.slow
async def test_what_was_spent_is_told_while_no_evaluation_goes_on(
    run_loop: RunLoop, tmp_path: Path, store_url: str
) -> None:
    section = {**suite(write_cases(tmp_path / "cases.jsonl", 1)), "calls_per_hour": 5}
    database = Database(store_url)

    async def told(requests: int) -> bool:
        text = (await loop.client.get("/metrics")).text
        return f'slipstream_budget_spent{{kind="requests",purpose="evaluation"}} {requests}.0' in text

    async with run_loop(Knowing(), rewards=EXACT, evaluation=section) as loop:
        async with database.write() as session:  # as another sidecar does
            await budget.spend(session, "evaluation", 3, 0, time.time())
        await until(lambda: told(3))
        async with database.write() as session:
            await session.execute(delete(SpentRow))  # as if an hour had passed
        await until(lambda: told(0))
    await database.close()


@pytest.mark.slow
async def test_one_evaluation_of_a_version_on_a_suite_at_a_time(run_loop: RunLoop, tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 2)
    explorer = Knowing()
    async with run_loop(explorer, rewards=EXACT, evaluation=suite(cases)) as loop:
        await serves(loop, 1)
        explorer.hold.clear()
        await asked(loop)
        assert (await refused(loop))[0] == 409
        explorer.hold.set()
        assert (await ended(loop, 1))["state"] == "done"
        audit = (await loop.client.get("/audit?action=evaluation_ask")).json()["entries"]
        assert [entry["written"] for entry in audit] == ["1"]


@pytest.mark.slow
async def test_each_second_version_is_evaluated_by_itself(run_loop: RunLoop, tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 1)
    async with run_loop(Knowing(), rewards=EXACT, evaluation=suite(cases, every=2)) as loop:
        await serves(loop, 1)
        await until(lambda: _versions(loop, [1]), 20)
        await serves(loop, 2)
        await serves(loop, 3)
        await until(lambda: _versions(loop, [3, 1]), 20)
        listed = (await loop.client.get("/evaluations")).json()["evaluations"]
        assert [one["trigger"] for one in listed] == ["every", "every"]


@ON_BOTH_STORES
async def test_held_out_sessions_are_compared_with_the_answers_that_users_got(
    run_loop: RunLoop, tmp_path: Path
) -> None:
    explorer = Knowing(1, 2)
    section = {"suites": [{"name": "live", "heldout": {"sessions": 3}}]}
    async with run_loop(
        explorer, rewards=EXACT, evaluation=section, selection={"explicit_mark": {}}, capture={"task_idle": "100ms"}
    ) as loop:
        await serves(loop, 1)
        status, _, message = await refused(loop)
        assert (status, "no stored session was left out of training" in message) == (422, True)
        for number in range(4):
            reference = json.dumps({"reference": f"echo: question {number}"})
            task = {"x-slipstream-task-id": f"t{number}", "x-slipstream-session-id": f"s{number}"}
            if number:
                await loop.chat(f"before {number}", task)
            await loop.chat(f"question {number}", {**task, "x-slipstream-metadata": reference})
        await loop.client.post("/marks", json={"task_id": "t0"})

        async def run() -> bool:
            return len(explorer.chats) == 1  # the marked one is trained on

        await until(run)

        async def decided() -> bool:
            tasks = [await loop.task(f"t{number}") for number in (1, 2, 3)]
            if not all(task is not None and len(task["calls"]) == 2 for task in tasks):
                return False
            status = await loop.status()
            return bool(sum(status["selection"]["not_selected"].values()) == 3)

        await until(decided)
        found = await ended(loop, (await asked(loop))["id"])
        assert found["settings"]["production"] == "stored answers"
        assert found["result"]["version"]["reward"]["mean"] == 0.666667
        assert found["result"]["production"]["reward"]["mean"] == 1
        assert found["result"]["against_production"]["sessions"] == 3
        asked_for = {str(chat["messages"][-1]["content"]) for chat in explorer.chats[1:]}
        assert asked_for == {"question 1", "question 2", "question 3"}, "the last of what is not trained on"


async def test_no_other_conversation_takes_the_place_of_one_that_is_deleted_meanwhile(run_loop: RunLoop) -> None:
    explorer = Knowing(1)
    section = {"suites": [{"name": "live", "heldout": {"sessions": 3}}]}
    right = {"x-slipstream-metadata": json.dumps({"reference": "echo: question 1"})}

    async def held_out(name: str) -> None:
        await loop.chat("question 1", {**right, "x-slipstream-task-id": name, "x-slipstream-session-id": name})

        async def decided() -> bool:
            status = await loop.status()
            return await loop.task(name) is not None and sum(status["selection"]["not_selected"].values()) == 1

        await until(decided)

    async with run_loop(
        explorer, rewards=EXACT, evaluation=section, selection={"explicit_mark": {}}, capture={"task_idle": "100ms"}
    ) as loop:
        await serves(loop, 1)
        await held_out("deleted")
        explorer.hold.clear()
        number = (await asked(loop))["id"]
        await until(lambda: explorer.chats)
        assert (await loop.client.delete("/data?session_id=deleted")).status_code == 200
        await held_out("new")  # it has the number of the deleted one in SQLite
        explorer.hold.set()
        [case] = (await ended(loop, number))["cases"]
        assert [answer["outcome"] for answer in case["version"]] == ["gone"]


async def refused(loop: Loop, **body: Any) -> tuple[int, str, str]:
    response = await loop.client.post("/evaluations", json=body)
    error = response.json()["error"]
    return response.status_code, error["param"], error["message"]


async def _versions(loop: Loop, expected: list[int]) -> bool:
    listed = (await loop.client.get("/evaluations")).json()["evaluations"]
    return [one["version"] for one in listed] == expected


@pytest.mark.parametrize("query", ["?limit=0", "?limit=201", "?cursor=0", "?version=-1", "?other=1"])
async def test_a_wrong_page_is_refused(run_loop: RunLoop, query: str) -> None:
    async with run_loop() as loop:
        assert (await loop.client.get(f"/evaluations{query}")).status_code == 422
        assert (await loop.client.get("/evaluations/1")).status_code == 404
        await asyncio.sleep(0)
