"""`/preferences` against a running sidecar: pairs are shown blind, judged once, and counted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from loops import Loop, RunLoop
from scripted import ScriptedExplorer
from serving import until
from shared_by_tenants import RunShared
from stores import ON_BOTH_STORES, stored_rows

MARKER = "3f2c77-otter"


async def asked(loop: Loop, task: str = "t", session: str = "s", runs: int = 1) -> None:
    """A call of an agent, and so many more runs that wait for the next commit."""
    ready = (await loop.status())["next_commit"]["experiences_ready"]
    await loop.chat(f"hello {task}", {"x-slipstream-task-id": task, "x-slipstream-session-id": session})
    await until(lambda: loop.ready(ready + runs))


async def shown(loop: Loop, annotator: str = "ann", **query: str) -> dict[str, Any] | None:
    response = await loop.client.get("/preferences/next", params={"annotator": annotator, **query})
    assert response.status_code == 200, response.text
    pair: dict[str, Any] | None = response.json()["pair"]
    return pair


async def judged(loop: Loop, pair: dict[str, Any], choice: str, annotator: str = "ann", **more: str) -> None:
    body = {"pair_id": pair["pair_id"], "choice": choice, "annotator": annotator, **more}
    response = await loop.client.post("/preferences", json=body)
    assert response.status_code == 200, response.text


async def figures(loop: Loop) -> dict[str, Any]:
    response = await loop.client.get("/preferences")
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def policys(pair: dict[str, Any]) -> str:
    """The place at which the policy's answer is shown."""
    [place] = [place for place in "ab" if "policy" in pair[place]["content"]]
    return place


@ON_BOTH_STORES
async def test_a_pair_is_shown_blind_judged_and_counted(run_loop: RunLoop) -> None:
    async with run_loop(ScriptedExplorer(answer="the policy says {n}")) as loop:
        assert await shown(loop) is None
        await asked(loop)
        pair = await shown(loop)
        assert pair is not None
        assert set(pair) == {"pair_id", "expires_at", "messages", "tools", "a", "b"}
        assert pair["messages"] == [{"role": "user", "content": "hello t"}]
        said = {pair["a"]["content"], pair["b"]["content"]}
        assert said == {"echo: hello t", "the policy says 1"}
        assert pair["a"].keys() == pair["b"].keys() == {"role", "content"}
        await judged(loop, pair, policys(pair))
        assert await shown(loop) is None
        found = await figures(loop)
        assert found["pairs"] == {"made": 1, "judged": 1, "identical": 0}
        assert sum(found["judgements"].values()) == 1
        assert found["position"]["first_chosen"] == float(policys(pair) == "a")
        first, second = found["ranking"]
        assert (first["answered_by"], second["answered_by"]) == ("version:0", "production")
        assert first["strength"] > 0 == second["strength"]


async def exported(loop: Loop) -> list[dict[str, Any]]:
    response = await loop.client.get("/preferences/export")
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


@ON_BOTH_STORES
async def test_judged_pairs_are_exported_as_chosen_and_rejected(run_loop: RunLoop) -> None:
    async with run_loop(ScriptedExplorer(answer="the policy says {n}"), preferences={"judgements": 2}) as loop:
        for task in ("one", "two", "three"):
            await asked(loop, task)
        for choices in (("policy", "policy"), ("production", "tie"), ("policy", "production")):
            for annotator, choice in zip(("ann", "bob"), choices, strict=True):
                pair = await shown(loop, annotator)
                assert pair is not None
                best = policys(pair)
                place = {"policy": best, "production": "ab".replace(best, "")}.get(choice, choice)
                await judged(loop, pair, place, annotator, reason="it is better")
        first, second = await exported(loop)
        assert first["prompt"] == [{"role": "user", "content": "hello three"}], "the newest is judged first"
        [chosen], [rejected] = first["chosen"], first["rejected"]
        assert chosen == {"role": "assistant", "content": "the policy says 3"}
        assert rejected == {"role": "assistant", "content": "echo: hello three"}
        assert (first["chosen_by"], first["rejected_by"]) == ("version:0", "production")
        assert first["votes"] == {"chosen": 2, "rejected": 0, "tie": 0, "both_bad": 0}
        assert first["reasons"] == ["it is better"] * 2
        assert (first["task_id"], first["session_id"]) == ("three", "s")
        assert (second["task_id"], second["chosen_by"]) == ("two", "production")
        assert second["votes"] == {"chosen": 1, "rejected": 0, "tie": 1, "both_bad": 0}
        found = await figures(loop)
        assert found["agreement"]["pairs"] == 3
        assert found["agreement"]["alpha"] is not None


@pytest.mark.slow
async def test_tool_calls_are_shown_without_their_ids_and_exported_with_them(run_loop: RunLoop) -> None:
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
    async with run_loop(ScriptedExplorer(answer="no")) as loop:
        headers = {"x-slipstream-task-id": "t", "x-slipstream-select": "always"}
        await loop.chat("use the tool", headers, tools=tools)
        await loop.chat([{"role": "user", "content": "hello"}], {"x-slipstream-task-id": "t"})
        pair = await until(lambda: shown(loop))
        while not any(pair[place].get("tool_calls") for place in "ab"):
            await judged(loop, pair, "tie")
            pair = await until(lambda: shown(loop))
        assert pair["tools"] == tools
        [place] = [place for place in "ab" if pair[place].get("tool_calls")]
        [call] = pair[place]["tool_calls"]
        assert call.keys() == {"type", "function"}
        assert call["function"]["name"] == "look_up"
        assert "call_" not in str(pair)
        await judged(loop, pair, place)
        [line] = await exported(loop)
        assert line["tools"] == tools
        assert line["chosen"][0]["tool_calls"][0]["id"].startswith("call_")


@ON_BOTH_STORES
async def test_a_judgement_is_refused_with_the_reason(run_loop: RunLoop) -> None:
    async with run_loop(ScriptedExplorer(answer="policy {n}")) as loop:
        await asked(loop)
        pair = await shown(loop)
        assert pair is not None

        async def refused(**body: Any) -> tuple[int, str, str]:
            asked = {"pair_id": pair["pair_id"], "choice": "a", "annotator": "ann", **body}
            response = await loop.client.post("/preferences", json=asked)
            error = response.json()["error"]
            return response.status_code, error["code"], error["param"]

        assert await refused(pair_id="unknown") == (404, "not_found", "pair_id")
        assert await refused(annotator="bob") == (409, "pair_not_offered", "pair_id")
        assert await refused(annotator=None) == (422, "invalid_request", "annotator")
        assert await refused(annotator="two words") == (422, "invalid_request", "annotator")
        assert await refused(choice="left") == (422, "invalid_request", "choice")
        await judged(loop, pair, "a")
        await judged(loop, pair, "a")
        assert await refused(choice="b") == (409, "pair_judged", "choice")
        assert (await figures(loop))["judgements"]["a"] == 1
        response = await loop.client.get("/preferences/next")
        assert response.json()["error"]["param"] == "annotator"
        response = await loop.client.get("/preferences/next", params={"annotator": "ann", "kind": "other"})
        assert response.status_code == 422
        metrics = (await loop.client.get("/metrics")).text
        assert 'slipstream_preferences_total{choice="a"} 1.0' in metrics


@pytest.mark.slow
@ON_BOTH_STORES
async def test_a_judgement_outlives_the_process(run_loop: RunLoop) -> None:
    explorer = ScriptedExplorer(answer="policy {n}")
    async with run_loop(explorer) as loop:
        await asked(loop)
        pair = await shown(loop)
        assert pair is not None
    async with run_loop(explorer) as loop:
        assert ((await shown(loop)) or {})["pair_id"] == pair["pair_id"]
        await judged(loop, pair, "b")
    async with run_loop(explorer) as loop:
        assert (await figures(loop))["judgements"]["b"] == 1


@pytest.mark.slow
@ON_BOTH_STORES
async def test_a_deleted_session_takes_its_pairs_and_judgements_along(run_loop: RunLoop, store_url: str) -> None:
    async with run_loop(ScriptedExplorer(answer="policy {n}")) as loop:
        await asked(loop, "one", "gone")
        await asked(loop, "two", "stays")
        for _ in range(2):
            pair = await shown(loop)
            assert pair is not None
            await judged(loop, pair, "a", reason=f"says {MARKER}")
        await asked(loop, "three", "gone")
        open_pair = await shown(loop)
        assert open_pair is not None
        response = await loop.client.delete("/data", params={"session_id": "gone"})
        assert response.json()["deleted"]["preferences"] == 2
        body = {"pair_id": open_pair["pair_id"], "choice": "a", "annotator": "ann"}
        assert (await loop.client.post("/preferences", json=body)).status_code == 404
        assert (await figures(loop))["pairs"] == {"made": 1, "judged": 1, "identical": 0}
        [line] = await exported(loop)
        assert line["session_id"] == "stays"
        assert await stored_rows(store_url, "SELECT count(*) FROM preference_offers") == [(1,)]


@pytest.mark.slow
@ON_BOTH_STORES
async def test_retention_deletes_the_texts_and_keeps_the_choice(run_loop: RunLoop, store_url: str) -> None:
    explorer = ScriptedExplorer(answer="policy {n}")
    async with run_loop(explorer) as loop:
        await asked(loop, "one", "gone")
        pair = await shown(loop)
        assert pair is not None
        await judged(loop, pair, "a", reason=f"says {MARKER}")
        await asked(loop, "two", "gone")
        assert await shown(loop) is not None, "which nobody judges"
    async with run_loop(explorer, capture={"retention": "100ms", "task_idle": "50ms"}) as loop:

        async def swept() -> bool:
            return await stored_rows(store_url, "SELECT count(*) FROM tasks") == [(0,)]

        await until(swept)
        assert await exported(loop) == []
        found = await figures(loop)
        assert found["pairs"] == {"made": 1, "judged": 1, "identical": 0}
        assert found["judgements"]["a"] == 1
        assert await stored_rows(store_url, "SELECT reason FROM preference_offers") == [(None,)]
        response = await loop.client.delete("/data", params={"session_id": "gone"})
        assert response.json()["deleted"]["preferences"] == 1, "a later deletion finds it"
        assert (await figures(loop))["pairs"]["made"] == 0


@pytest.mark.slow
async def test_what_annotators_say_is_redacted_and_encrypted(run_loop: RunLoop, store_url: str) -> None:
    key = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
    store = {"url": store_url, "encryption_key": [key]}
    async with run_loop(ScriptedExplorer(answer="policy {n}"), store=store) as loop:
        await asked(loop)
        pair = await shown(loop)
        assert pair is not None
        await judged(loop, pair, "a", reason=f"{MARKER} sk-abcdefghijklmnopqrstuvwxyz0123456789ABCD")
        [line] = await exported(loop)
        [reason] = line["reasons"]
        assert MARKER in reason
        assert "sk-abc" not in reason
        [(stored,)] = await stored_rows(store_url, "SELECT reason FROM preference_offers")
        assert MARKER not in stored


@pytest.mark.sampled(1)
@pytest.mark.parametrize("key", ["annotator-a", "admin-a"])
async def test_an_annotator_is_known_by_her_key_and_sees_her_tenants_pairs_alone(
    run_shared: RunShared, key: str
) -> None:
    async with run_shared(ScriptedExplorer(answer="policy {n}")) as shared:
        await shared.chat("agent-a", "hello", task_id="mine", session_id="s")
        await shared.chat("agent-b", "hello", task_id="theirs", session_id="s")
        async with shared.as_("metrics") as seen_by_all:
            await until(lambda: seen_by_all.ready(2))
        seen = (await shared.ask(key, "GET", "/preferences/next")).json()["pair"]
        assert seen is not None
        body = {"pair_id": seen["pair_id"], "choice": "tie"}
        assert (await shared.ask("annotator-b", "POST", "/preferences", json=body)).status_code == 404
        answer = await shared.ask(key, "POST", "/preferences", json=body)
        assert answer.json() == {**body, "annotator": key}
        assert (await shared.ask(key, "GET", "/preferences/next")).json() == {"pair": None}
        own, others = [(await shared.ask(f"admin-{one}", "GET", "/preferences")).json() for one in "ab"]
        assert (own["judgements"]["tie"], others["judgements"]["tie"]) == (1, 0)
        [entry] = (await shared.ask("admin", "GET", "/audit", params={"action": "preference"})).json()["entries"]
        assert (entry["key"], entry["tenant"], entry["written"]) == (key, "acme", seen["pair_id"])
        assert entry["names"] == ["mine"]
