"""What a collector gets: the spans of calls, runs, scores and deliveries, without a word that anybody said."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from collector import Collector
from dialects_production import DialectsProduction
from evaluated import EXACT, Knowing, evaluated, suite, write_cases
from loops import RunLoop
from scripted import ScriptedExplorer
from serving import serving, until

from slipstream import shutdown

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = PARENT[:-1] + "0"
SECRET = "the-key-of-the-collector"
WORDS = "a word that only the user said"


@pytest.fixture(autouse=True)
def time_for_the_last_export(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may need more than the second that a sidecar has."""
    monkeypatch.setattr(shutdown, "TRACES", 15.0)


def otel(url: str, **more: Any) -> dict[str, Any]:
    return {"endpoint": url, "headers": {"x-key": SECRET, "x-none": ""}, **more}


async def test_a_call_its_runs_their_scores_and_the_delivery_are_spans_that_lead_to_each_other(
    run_loop: RunLoop,
) -> None:
    collector = Collector()
    before = time.time()
    async with (
        serving(collector.app()) as url,
        run_loop(otel=otel(url, service_name="shop"), runs={"repeat_time": 2}) as loop,
    ):
        await loop.chat(WORDS, {"traceparent": PARENT, "x-slipstream-task-id": "t-1"})
        await until(lambda: loop.ready(2))
        await loop.commit()
        streamed = await loop.client.post(
            "/v1/chat/completions",
            json={"model": "prod", "messages": [{"role": "user", "content": WORDS}], "stream": True},
            headers={"traceparent": UNSAMPLED},
        )
        assert streamed.text.endswith("data: [DONE]\n\n")
        await until(lambda: loop.ready(2))
    [call] = collector.named("chat prod", asked_by="agent")
    assert (call.trace_id, call.parent_id) == (PARENT[3:35], PARENT[36:52])
    assert before <= call.started_at <= call.ended_at <= time.time()
    assert not call.error
    assert call.attributes.pop("server.port") > 0
    assert call.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "prod",
        "gen_ai.response.model": "scripted",
        "gen_ai.response.id": "prod-0",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 2,
        "server.address": "127.0.0.1",
        "http.response.status_code": 200,
        "slipstream.asked_by": "agent",
        "slipstream.dialect": "chat",
        "slipstream.answered_by": "production",
        "slipstream.captured": True,
        "slipstream.tenant": "default",
        "slipstream.task_id": "t-1",
    }
    runs = [one for one in collector.spans if one.attributes.get("slipstream.asked_by") == "shadow"]
    followed = [one for one in runs if one.attributes["slipstream.msg_id"] == "prod-0"]
    assert [one.links for one in followed] == [[call.span_id]] * 2
    assert {one.attributes["slipstream.run_id"] for one in followed} == {0, 1}
    assert {one.attributes["slipstream.task_id"] for one in followed} == {"t-1"}
    assert [one.links for one in runs if one not in followed] == [[], []], "their call was not traced"
    scores = {one.links[0]: one.attributes["slipstream.reward"] for one in collector.named("score run")}
    assert scores == {one.span_id: 0.5 for one in runs}
    [commit, *_] = collector.named("commit", experiences=2)
    [told] = [one for one in collector.named("feed back group") if one.parent_id == commit.span_id]
    assert told.trace_id == commit.trace_id
    assert told.attributes["slipstream.group_id"] == followed[0].attributes["slipstream.group_id"]
    assert {one.resource["service.name"] for one in collector.spans} == {"shop"}
    assert call.resource["service.version"]
    assert call.resource["service.instance.id"]
    assert collector.headers["x-key"] == SECRET
    assert "x-none" not in collector.headers
    assert WORDS.encode() not in collector.said


async def test_a_call_that_is_not_captured_is_traced_unless_its_agent_opts_out(run_loop: RunLoop) -> None:
    collector = Collector()
    asked = {"messages": [{"role": "user", "content": WORDS}]}
    async with serving(collector.app()) as url, run_loop(otel=otel(url), capture={"rate": 0}) as loop:
        await loop.chat(WORDS, {"x-slipstream-capture": "never"})
        await loop.chat(WORDS, {"traceparent": UNSAMPLED})
        await loop.chat(WORDS, {"traceparent": PARENT, "x-slipstream-task-id": "t-2"})
        answer = await loop.client.post("/v1/messages", json=asked)
        assert answer.status_code == 404
        assert (await loop.client.get("/v1/models")).status_code == 200
        metrics = (await loop.client.get("/metrics")).text
        assert "slipstream_proxy_traces_dropped_total 0.0" in metrics
        assert (await loop.client.get("/tasks/t-2")).status_code == 404
    traced, failed = sorted(collector.spans, key=lambda one: one.started_at)
    assert traced.parent_id == PARENT[36:52]
    assert (traced.name, traced.error) == ("chat", False)
    assert traced.attributes["slipstream.captured"] is False
    assert "slipstream.task_id" not in traced.attributes
    assert (failed.error, failed.attributes["error.type"], failed.parent_id) == (True, "404", "")
    assert failed.attributes["gen_ai.provider.name"] == "anthropic"


@pytest.mark.slow
async def test_the_other_dialects_show_their_figures_streamed_or_not(run_loop: RunLoop) -> None:
    collector = Collector()
    ends = {"responses": "completed", "messages": "end_turn"}
    said = {"responses": {"input": WORDS}, "messages": {"messages": [{"role": "user", "content": WORDS}]}}
    async with (
        serving(collector.app()) as url,
        serving(DialectsProduction().app()) as production,
        run_loop(otel=otel(url), production={"base_url": f"{production}/v1"}) as loop,
    ):
        for dialect, fields in said.items():
            for streamed in (False, True):
                body = {"model": "prod", "max_tokens": 9, **fields, "stream": streamed}
                assert (await loop.client.post(f"/v1/{dialect}", json=body)).status_code == 200
        await until(lambda: loop.ready(4))
    for dialect, end in ends.items():
        calls = collector.named("chat prod", asked_by="agent", dialect=dialect)
        assert sorted("gen_ai.response.time_to_first_chunk" in call.attributes for call in calls) == [False, True]
        for call in calls:
            assert call.attributes["gen_ai.usage.input_tokens"] == 3
            assert call.attributes["gen_ai.usage.output_tokens"] == 2
            assert call.attributes["gen_ai.response.finish_reasons"] == [end]


async def test_calls_of_an_agent_that_is_run_again_belong_to_its_own_trace(run_loop: RunLoop) -> None:
    collector = Collector()
    async with serving(collector.app()) as url, run_loop(otel=otel(url)) as loop:
        await loop.client.post("/runs/t", json={"runs": 1})
        body = {"messages": [{"role": "user", "content": WORDS}]}
        answer = await loop.client.post("/runs/t/0/v1/chat/completions", json=body, headers={"traceparent": PARENT})
        assert answer.status_code == 200, answer.text
        await loop.client.post("/explorer/v1/chat/completions", json=body)
        await loop.client.post("/runs/t/0/finish", json={})
        await until(lambda: loop.ready(1))
    [call] = [one for one in collector.spans if one.attributes.get("slipstream.asked_by") == "replay"]
    assert (call.trace_id, call.parent_id) == (PARENT[3:35], PARENT[36:52])
    assert call.attributes["gen_ai.response.id"] == answer.json()["id"]
    assert call.attributes["slipstream.task_id"] == "t"
    [facade] = [one for one in collector.spans if one.attributes.get("slipstream.asked_by") == "facade"]
    assert facade.attributes["gen_ai.usage.input_tokens"] == 3
    [score] = collector.named("score run")
    assert score.links == [call.span_id]


async def test_a_run_that_the_explorer_refuses_has_failed(run_loop: RunLoop) -> None:
    collector, explorer = Collector(), ScriptedExplorer()
    explorer.faults["/v1/chat/completions"] = [400]
    async with serving(collector.app()) as url, run_loop(explorer, otel=otel(url)) as loop:
        await loop.chat(WORDS)
        await until(lambda: explorer.chats)

        async def failed() -> bool:
            return (await loop.status())["runs"].get("failed") == 1

        await until(failed)
    [run] = [one for one in collector.spans if one.attributes.get("slipstream.asked_by") == "shadow"]
    assert (run.error, run.attributes["error.type"]) == (True, "ExplorerRefused")


@pytest.mark.slow
async def test_versions_leave_spans_where_they_are_evaluated_rolled_out_and_answer_users(
    run_loop: RunLoop, tmp_path: Path
) -> None:
    collector, lane = Collector(), ScriptedExplorer()
    lane.version = 12
    cases = suite(write_cases(tmp_path / "cases.jsonl", 2))
    async with (
        serving(collector.app()) as url,
        serving(lane.app()) as lane_url,
        run_loop(
            Knowing(1),
            otel=otel(url),
            rewards=EXACT,
            evaluation=cases,
            serving={"mode": "on", "lane": {"base_url": f"{lane_url}/v1"}},
        ) as loop,
    ):
        await evaluated(loop, 8)
        opened = await loop.client.post("/rollouts", json={"version": 8})
        assert opened.status_code == 201, opened.text

        async def answered_by_the_version() -> bool:
            headers = {"x-slipstream-session-id": uuid4().hex, "x-slipstream-variant": "?1", "traceparent": PARENT}
            body = {"model": "prod", "messages": [{"role": "user", "content": WORDS}]}
            answer = await loop.client.post("/v1/chat/completions", json=body, headers=headers)
            return answer.headers["x-slipstream-variant"] == "version:8"

        await until(answered_by_the_version, 30)
    [evaluation] = collector.named("evaluate version")
    assert evaluation.attributes == {
        "slipstream.evaluation": 1,
        "slipstream.policy_version": 8,
        "slipstream.suite": "fixed",
        "slipstream.trigger": evaluation.attributes["slipstream.trigger"],
        "slipstream.state": "done",
    }
    assert evaluation.started_at < evaluation.ended_at
    decisions = {one.attributes["slipstream.verdict"]: one.attributes for one in collector.named("decide rollout")}
    assert {"open", "begin"} <= decisions.keys()
    assert decisions["begin"]["slipstream.state"] == "running"
    assert 0 < decisions["begin"]["slipstream.share"] < 1
    [call] = collector.named("chat prod", answered_by="version:8")
    assert (call.parent_id, call.attributes["gen_ai.provider.name"]) == (PARENT[36:52], "slipstream")
    assert f":{call.attributes['server.port']}" in lane_url
    assert all("traceparent" not in head or head["traceparent"] == PARENT for head in lane.headers)


async def test_headers_go_to_production_as_they_came(run_loop: RunLoop) -> None:
    heads: list[list[tuple[bytes, bytes]]] = []

    async def production(scope: Any, receive: Any, send: Any) -> None:
        heads.append(scope["headers"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": b"{}"})

    async with serving(Collector().app()) as url, serving(production) as production_url:
        for sections in ({}, {"otel": otel(url)}):
            async with run_loop(production={"base_url": f"{production_url}/v1"}, **sections) as loop:
                for headers in ({}, {"TraceParent": PARENT, "tracestate": "a=b"}):
                    await loop.client.post("/v1/chat/completions", json={"messages": []}, headers=headers)
    off, on = heads[:2], heads[2:]
    assert [[field for field in head if field[0] != b"host"] for head in on] == [
        [field for field in head if field[0] != b"host"] for head in off
    ]
    assert (b"traceparent", PARENT.encode()) in on[1]
