"""Reports on models by `slipstream evaluate --model`: what is asked, measured, compared, written and shown."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from checkpoint_job import CheckpointJob
from commands import slipstream
from evaluated import Knowing, write_cases
from scripted import completion, production_app, tool_call
from serving import serving
from sqlalchemy import text
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from stores import ON_BOTH_STORES

from slipstream.errors import StoreAway
from slipstream.store import versions
from slipstream.store.database import Database
from slipstream.store.tables.versions import VersionRow
from slipstream.versions import keeping, lanes

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": name,
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
    for name in ("weather", "time")
]


class Provider:
    """A server of chat completions: each of its models is a function from the last message to an answer.

    Attributes:
        asked: the requests.
        keys: the authorization of each.
    """

    def __init__(self, **models: Any) -> None:
        self.models = models
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self._numbers = itertools.count()

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/chat/completions", self._chat, methods=["POST"])])

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        self.keys.append(request.headers.get("authorization"))
        said = self.models[body["model"]](str(body["messages"][-1]["content"]))
        if isinstance(said, int):
            return JSONResponse({"error": {"message": "scripted"}}, said)
        if isinstance(said, str):
            return JSONResponse(completion(f"a{next(self._numbers)}", said))
        calls = [tool_call(name, arguments, f"c{place}") for place, (name, arguments) in enumerate(said)]
        return JSONResponse(completion(f"a{next(self._numbers)}", "", calls))


@asynccontextmanager
async def providing(**models: Any) -> AsyncIterator[tuple[Provider, str]]:
    """Yield a provider with the URL of its API."""
    provider = Provider(**models)
    async with serving(provider.app()) as url:
        yield provider, f"{url}/v1"


def tool_cases(path: Path, count: int = 24) -> Path:
    """Write cases that need one call, two calls in order, and none, in turn."""
    lines = []
    for number, kind in zip(range(count), itertools.cycle(("one", "two", "none"))):
        calls: list[dict[str, Any]] = [{"weather": {"city": [f"Rome {number}", f"Roma {number}"]}}]
        if kind == "two":
            calls.append({"name": "time", "arguments": {"city": f"Rome {number}"}})
        lines.append(
            {
                "id": f"{kind}-{number}",
                "prompt": f"{kind} {number}",
                "session": f"s{number // 2}",
                "tools": TOOLS,
                "metadata": {"tool_calls": [] if kind == "none" else calls},
            }
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def knows_all(said: str) -> Any:
    kind, _, number = said.partition(" ")
    calls = [("weather", {"city": f"ROMA {number}"}), ("time", {"city": f"Rome {number}"})]
    return {"one": calls[:1], "two": calls, "none": "nothing to do"}[kind]


def knows_little(said: str) -> Any:
    """Gets one argument wrong, leaves the second call out, and calls where nothing is due."""
    kind, _, number = said.partition(" ")
    return {
        "one": [("weather", {"city": "Paris"})],
        "two": [("weather", {"city": f"Rome {number}"})],
        "none": [("time", {"city": "Rome"})],
    }[kind]


def read(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return found


def written(folder: Path) -> list[str]:
    """The texts of a report's files."""
    return [(folder / f"report.{form}").read_text(encoding="utf-8") for form in ("html", "md", "json")]


def means(report: dict[str, Any], name: str) -> dict[str, float]:
    [model] = [model for model in report["models"] if model["name"] == name]
    return {measure: found["mean"] for measure, found in model["measures"].items()}


@pytest.fixture
def sidecar_file(tmp_path: Path) -> Path:
    """A file of a sidecar that has nothing of its own, for tests that ask URLs alone."""
    path = tmp_path / "sidecar.yaml"
    path.write_text("runs: {max_attempts: 1, timeout: 5s}\n")
    return path


async def test_two_models_are_measured_and_compared_case_by_case(tmp_path: Path, sidecar_file: Path) -> None:
    cases = tool_cases(tmp_path / "cases.jsonl")
    async with providing(good=knows_all, bad=knows_little) as (provider, url):
        code, out, err = await slipstream(
            "evaluate", "--config", str(sidecar_file), "--model", f"{url}#bad", "--model", f"{url}#good",
            "--cases", str(cases), "--report", str(tmp_path / "report"),
        )  # fmt: skip
    assert code == 0, (out, err)
    assert len(provider.asked) == 48
    report = read(tmp_path / "report")
    good, bad = (means(report, f"{url}#{name}") for name in ("good", "bad"))
    assert {name: good[name] for name in good if name not in ("latency", "tokens", "prompt_tokens")} == {
        "end_to_end": 1, "tool_accuracy": 1, "argument_accuracy": 1, "recall": 1, "plan_success": 1,
        "step_efficiency": 1, "timing_precision": 1, "format": 1,
    }  # fmt: skip
    assert bad["end_to_end"] == 0
    assert bad["timing_precision"] == pytest.approx(2 / 3, abs=1e-6), "it calls where nothing is due"
    assert bad["plan_success"] == 0.5, "of the cases that expect calls, half expect two"
    assert bad["argument_accuracy"] == 0.25
    assert (bad["tokens"], bad["prompt_tokens"]) == (2, 3)
    [pair] = report["pairs"]
    assert (pair["one"], pair["other"]) == (f"{url}#good", f"{url}#bad")
    whole = pair["measures"]["end_to_end"]
    assert (whole["verdict"], whole["difference"], whole["cases"], whole["sessions"]) == ("better", 1, 24, 12)
    assert whole["interval"][0] > 0
    assert pair["measures"]["tokens"]["verdict"] is None
    for name in ("report.md", "report.html"):
        shown = (tmp_path / "report" / name).read_text(encoding="utf-8")
        assert "Argument accuracy" in shown
        assert "two-1" in shown, "the cases that differ most are named"
    assert "Argument accuracy" in out
    assert "good less" in out


FEW = ("--metrics", "end_to_end,recall")


async def test_conditions_decide_the_exit_code(tmp_path: Path, sidecar_file: Path) -> None:
    cases = tool_cases(tmp_path / "cases.jsonl", 12)
    async with providing(good=knows_all, bad=knows_little) as (_, url):

        async def code(*words: str) -> tuple[int, str]:
            asked = ("evaluate", "--config", str(sidecar_file), "--cases", str(cases), *FEW, *words)
            found, out, err = await slipstream(*asked)
            return found, out + err

        good, bad = f"{url}#good", f"{url}#bad"
        assert (await code("--model", good, "--fail-under", "recall=1"))[0] == 0
        found, out = await code("--model", bad, "--fail-under", "recall=0.3", "--fail-under", "end_to_end=0")
        assert found == 1
        assert f"fails: recall of {bad}: 0.3 or more (0.250)" in out
        assert f"holds: end_to_end of {bad}: 0 or more (0.000)" in out
        found, out = await code("--model", bad, "--against", good, "--fail-worse")
        assert found == 1
        assert f"fails: end_to_end of {bad}: not worse than {good} (-1.000 to -1.000)" in out
        assert (await code("--model", bad, "--against", good, "--fail-worse", "--fail-margin", "1"))[0] == 0
        assert (await code("--model", bad, "--model", good, "--fail-worse"))[0] == 0, "the first is compared with"
        assert (await code("--model", good, "--model", bad, "--fail-under", "recall=0.2"))[0] == 0
        assert (await code("--model", bad, "--model", good, "--fail-under", "recall=1.1"))[0] == 1


async def test_a_model_that_is_away_is_said_and_not_scored(tmp_path: Path, sidecar_file: Path) -> None:
    cases = tool_cases(tmp_path / "cases.jsonl", 12)
    async with providing(good=knows_all, gone=lambda said: 503) as (provider, url):
        code, out, _ = await slipstream(
            "evaluate", "--config", str(sidecar_file), "--cases", str(cases), *FEW, "--model", f"{url}#good",
            "--model", f"{url}#gone", "--report", str(tmp_path), "--concurrency", "1",
            "--fail-under", "end_to_end=0",
        )  # fmt: skip
        assert code == 1
        assert f"away: {url}#gone: HTTP 503" in out
        assert f"fails: end_to_end of {url}#gone: 0 or more (away: HTTP 503)" in out
        assert sum(body["model"] == "gone" for body in provider.asked) == 5, "it is not asked for ever"
    report = read(tmp_path)
    good, gone = report["models"]
    assert (gone["measures"], gone["answers"], report["pairs"]) == ({}, {"away": 12}, [])
    assert good["measures"]["end_to_end"]["mean"] == 1
    assert all(f"{url}#gone" not in case["values"] for case in report["cases"])


async def test_production_and_the_served_version_are_asked_as_suites_ask_them(tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 20)
    explorer = Knowing(*range(5))
    explorer.version = 8
    async with serving(production_app()) as production, serving(explorer.app()) as policy:
        path = tmp_path / "sidecar.yaml"
        path.write_text(
            f"production: {{base_url: {production}/v1, api_key: secret}}\n"
            f"explorer: {{base_url: {policy}}}\nrewards: {{calculators: [exact_match]}}\n"
            f"evaluation: {{suites: [{{name: faq, cases: {cases}, production: gpt}}]}}\n"
        )
        words = ("evaluate", "--config", str(path), "--cases", str(cases), "--metrics", "end_to_end,tokens")
        code, out, err = await slipstream(
            *words, "--model", "production", "--model", "version:8", "--model", "policy", "--report", str(tmp_path),
            "--parameters", '{"temperature": 0}',
        )  # fmt: skip
        assert code == 0, out + err
        report = read(tmp_path)
        assert [(model["name"], model["model"], model["version"]) for model in report["models"]] == [
            ("production", "gpt", None), ("version:8", None, 8), ("policy", None, 8),
        ]  # fmt: skip
        assert means(report, "production") == {"end_to_end": 1, "tokens": 2}
        assert means(report, "version:8")["end_to_end"] == means(report, "policy")["end_to_end"] == 0.25
        assert report["settings"]["end_to_end"] == "reward: exact_match"
        assert {chat["temperature"] for chat in explorer.chats} == {0}
        assert (len(explorer.chats), explorer.ready) == (40, 0), "no reward of it is delivered"

        code, out, err = await slipstream(*words, "--model", "version:9")
        assert (code, out) == (2, "")
        assert "version:9: expected version 9 to be served, so that it can be asked; the Explorer serves 8" in err
        code, out, err = await slipstream(*words, "--model", "production:other", "--max-requests", "19")
        assert code == 2
        assert "--max-requests: expected 19 calls at most, and 20 cases for 1 models need 20" in err


@ON_BOTH_STORES
async def test_a_number_that_another_training_has_by_now_is_not_the_version(
    tmp_path: Path, database: Database, store_url: str
) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 2)
    explorer = Knowing()
    explorer.version = 8
    async with database.write() as session:
        await versions.record_version(session, 8, 1.0)
    async with serving(explorer.app()) as policy:
        path = tmp_path / "sidecar.yaml"
        path.write_text(f"store: {{url: '{store_url}'}}\nexplorer: {{base_url: {policy}}}\n")
        words = ("evaluate", "--config", str(path), "--cases", str(cases), *FEW, "--model", "version:8")
        assert (await slipstream(*words))[0] == 0
        async with database.write() as session:
            await session.execute(text("UPDATE versions SET replaced_at = 2"))
        code, _, err = await slipstream(*words)
        assert code == 2
        assert "version:8: expected version 8 to be served" in err
        assert (await slipstream(*words[:-1], "policy"))[0] == 0, "what the Explorer serves, whatever it is"


@ON_BOTH_STORES
async def test_the_lanes_weights_of_another_training_are_not_the_version(
    tmp_path: Path, database: Database, store_url: str
) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 2)
    explorer, lane, job = Knowing(), Knowing(), CheckpointJob(tmp_path / "job")
    explorer.version, lane.version = 9, 1
    job.publish(8)
    lanes.put(tmp_path / "lane", keeping.keep(job.path, tmp_path / "kept", 8, copy=False), 8, copy=False)
    async with serving(explorer.app()) as policy, serving(lane.app()) as lane_url:
        path = tmp_path / "sidecar.yaml"
        path.write_text(
            f"store: {{url: '{store_url}'}}\nexplorer: {{base_url: {policy}}}\n"
            f"serving: {{mode: on, lane: {{base_url: {lane_url}/v1, directory: {tmp_path}/lane}}}}\n"
        )
        words = ("evaluate", "--config", str(path), "--cases", str(cases), *FEW, "--model", "version:8")
        assert (await slipstream(*words))[0] == 0
        async with database.write() as session:
            session.add(VersionRow(version=8, seen_at=1.0, made_at=1.0))
        code, _, err = await slipstream(*words)
        assert code == 2
        assert "version:8: expected version 8 to be served" in err


async def test_a_store_that_is_away_while_the_lane_is_asked_does_not_end_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 2)
    explorer, job = Knowing(), CheckpointJob(tmp_path / "job")
    explorer.version = 9

    class Asked(Knowing):
        def reply(self, msg_id: str, body: dict[str, Any]) -> dict[str, Any]:
            monkeypatch.setattr(Database, "snapshot", away)
            return super().reply(msg_id, body)

    def away(_: Database) -> None:
        raise StoreAway("the store is away")

    lane = Asked()
    lane.version = 1
    job.publish(8)
    lanes.put(tmp_path / "lane", keeping.keep(job.path, tmp_path / "kept", 8, copy=False), 8, copy=False)
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    await database.open()
    await database.close()
    async with serving(explorer.app()) as policy, serving(lane.app()) as lane_url:
        path = tmp_path / "sidecar.yaml"
        path.write_text(
            f"store: {{url: 'sqlite+aiosqlite:///{tmp_path}/slipstream.db'}}\nexplorer: {{base_url: {policy}}}\n"
            f"serving: {{mode: on, lane: {{base_url: {lane_url}/v1, directory: {tmp_path}/lane}}}}\n"
        )
        code, _, err = await slipstream(
            "evaluate", "--config", str(path), "--cases", str(cases), *FEW, "--model", "version:8"
        )
    assert (code, len(lane.chats)) == (0, 2), err


async def test_a_version_that_changes_meanwhile_ends_the_report(tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl", 20)

    class Moving(Knowing):
        def reply(self, msg_id: str, body: dict[str, Any]) -> dict[str, Any]:
            self.version = 8 if len(self.chats) < 9 else 9
            return super().reply(msg_id, body)

    explorer = Moving()
    explorer.version = 8
    async with serving(explorer.app()) as policy:
        path = tmp_path / "sidecar.yaml"
        path.write_text(f"explorer: {{base_url: {policy}}}\n")
        code, _, err = await slipstream(
            "evaluate", "--config", str(path), "--cases", str(cases), *FEW, "--model", "policy", "--report",
            str(tmp_path / "report"),
        )  # fmt: skip
    assert code == 2
    assert "policy: version 8 was not served any more by the Explorer while it was asked" in err
    assert list((tmp_path / "report").iterdir()) == [], "nothing of it is used"


async def test_two_reports_are_compared_on_the_cases_that_both_have(tmp_path: Path, sidecar_file: Path) -> None:
    cases = tool_cases(tmp_path / "cases.jsonl", 18)
    async with providing(model=knows_little) as (provider, url):
        words = ("evaluate", "--config", str(sidecar_file), "--cases", str(cases), *FEW, "--model", f"{url}#model")
        await slipstream(*words, "--report", str(tmp_path / "before"), "--limit", "12")
        provider.models["model"] = knows_all
        await slipstream(*words, "--report", str(tmp_path / "after"))
    before, after = str(tmp_path / "before"), str(tmp_path / "after")
    assert len(read(tmp_path / "before")["cases"]) == 12
    code, out, err = await slipstream(
        "evaluate", "--compare", before, after, "--report", str(tmp_path / "both"), "--fail-worse"
    )
    assert code == 0, out + err
    both = read(tmp_path / "both")
    [pair] = both["pairs"]
    assert (pair["one"], pair["other"]) == (f"{url}#model, after", f"{url}#model, before")
    assert (pair["measures"]["end_to_end"]["difference"], pair["measures"]["end_to_end"]["cases"]) == (1, 12)
    assert (await slipstream("evaluate", "--compare", after, before, "--fail-worse"))[0] == 1
    (tmp_path / "after" / "report.json").write_text('{"format": "something"}')
    code, _, err = await slipstream("evaluate", "--compare", before, after)
    assert code == 2
    assert f"{tmp_path}/after/report.json: format: " in err


async def test_two_reports_that_were_asked_in_different_ways_say_how_each_was(
    tmp_path: Path, sidecar_file: Path
) -> None:
    cases = tool_cases(tmp_path / "cases.jsonl", 3)
    before, after, both = (tmp_path / name for name in ("before", "after", "both"))
    async with providing(model=knows_all) as (_, url):
        words = ("evaluate", "--config", str(sidecar_file), "--cases", str(cases), *FEW, "--model", f"{url}#model")
        await slipstream(*words, "--report", str(before))
        await slipstream(*words, "--report", str(after), "--repeat", "2", "--parameters", '{"max_tokens": 20}')
    code, out, err = await slipstream("evaluate", "--compare", str(before), str(after), "--report", str(both))
    assert code == 0, out + err
    told = 'each asked: before once with the parameters {}; after 2 times with the parameters {"max_tokens": 20}'
    assert told in out
    settings = read(both)["settings"]
    assert (settings["repeat"], settings["parameters"]) == (None, None)
    code, out, err = await slipstream("evaluate", "--compare", str(after), str(after))
    assert code == 0, out + err
    assert "each asked 2 times\n" in out
    code, out, err = await slipstream("evaluate", "--compare", str(both), str(after))
    assert code == 0, out + err
    assert "each asked: both before once with the parameters {}; after 2 times" in out, "what was compared before stays"


async def test_texts_of_others_are_inert_in_each_form(tmp_path: Path, sidecar_file: Path) -> None:
    hostile = "<script>alert(1)</script>|`[x](http://evil)\x1b[2J\u202e"
    line = {"id": hostile, "prompt": "x", "reference": "right", "session": hostile}
    cases = tmp_path / "cases.jsonl"
    cases.write_text(json.dumps(line) + "\n" + json.dumps({**line, "id": "b"}) + "\n", encoding="utf-8")
    name = "m<img src=x onerror=alert(1)>|m"
    async with providing(**{name: lambda said: "right", "other": lambda said: "wrong"}) as (_, url):
        code, out, err = await slipstream(
            "evaluate", "--config", str(sidecar_file), "--cases", str(cases), "--metrics", "end_to_end",
            "--model", f"{url}#{name}", "--model", f"{url}#other", "--report", str(tmp_path),
        )  # fmt: skip
    assert code == 0, out + err
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    plain = (tmp_path / "report.md").read_text(encoding="utf-8")
    for each in (page, plain, out):
        assert not {"\x1b", "\u202e"} & set(each)
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "default-src 'none'" in page
    assert "\\<script\\>alert\\(1\\)" in plain
    assert "<img" not in plain.replace("\\<img", "")
    assert hostile == read(tmp_path)["cases"][0]["case"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--model", "gpt-4o"), "--model: expected production[:MODEL], version:NUMBER, policy, or http"),
        (("--model", "version:-1"), "--model: expected production[:MODEL]"),
        (("--model", "http://user:pass@host/v1#m"), "expected a URL without a user and a password"),
        (("--model", "http://host/v1"), "--model: expected http://HOST/v1#MODEL"),
        (("--model", "policy", "--model", "policy"), "--model: expected different models"),
        (("--model", "production"), "production: expected production:MODEL"),
        (("--model", "policy", "--benchmark", "bfcl"), "exactly one of --cases, --held-out and --benchmark"),
        (("--cases-only",), "--model: needed"),
        (("--model", "policy", "--metrics", "rouge"), "--metrics: expected one of end_to_end, tool_accuracy"),
        (("--model", "policy", "--fail-under", "recall=x"), "--fail-under: expected METRIC=NUMBER"),
        (("--model", "policy", "--fail-under", "latency=1"), "expected a measure of which more is better"),
        (("--model", "policy", "--fail-worse"), "--fail-worse: expected a model to compare with"),
        (("--model", "policy", "--parameters", "[]"), "--parameters: expected a JSON object, found list"),
        (("--model", "policy", "--model-key-from", "NO_SUCH_KEY"), "found no NO_SUCH_KEY"),
        (("--model", "policy", "--sessions", "3"), "--sessions: expected --held-out live with it"),
        (("--model", "policy", "--suite", "faq"), "expected either [VERSION] and --suite, or the options of a report"),
        (("--model", "policy", "--compare", "a", "b"), "--compare: expected two reports and nothing to ask"),
    ],
)
async def test_a_wrong_option_is_told_in_words(tmp_path: Path, sidecar_file: Path, words: Any, told: str) -> None:
    cases = tool_cases(tmp_path / "cases.jsonl", 3)
    words = () if words == ("--cases-only",) else words
    code, out, err = await slipstream("evaluate", "--config", str(sidecar_file), "--cases", str(cases), *words)
    assert (code, out) == (2, "")
    assert told in err


async def test_expected_calls_that_cannot_be_read_are_named(tmp_path: Path, sidecar_file: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text(json.dumps({"id": "a", "prompt": "x", "metadata": {"tool_calls": [{"f": {"x": 1}}]}}))
    code, _, err = await slipstream(
        "evaluate", "--config", str(sidecar_file), "--cases", str(cases), "--model", "policy"
    )
    assert code == 2
    assert f"{cases}: case 'a': metadata.tool_calls.0: expected a tool call" in err


async def test_a_key_is_sent_to_models_of_a_url_alone(
    tmp_path: Path, sidecar_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = tool_cases(tmp_path / "cases.jsonl", 3)
    monkeypatch.setenv("MY_KEY", "abc")
    async with providing(good=knows_all) as (provider, url):
        words = ("evaluate", "--config", str(sidecar_file), "--cases", str(cases), *FEW, "--model", f"{url}#good")
        await slipstream(*words, "--model-key-from", "MY_KEY")
        await slipstream(*words)
    assert provider.keys == ["Bearer abc"] * 3 + [None] * 3


async def test_answers_that_are_hardly_any_are_measured_and_break_nothing(tmp_path: Path, sidecar_file: Path) -> None:
    cases = tool_cases(tmp_path / "cases.jsonl", 3)
    odd: list[Any] = [{"tool_calls": 7}, {"tool_calls": ["x", None]}, {"content": 3, "tool_calls": [{"function": []}]}]
    remaining = iter(odd)

    async def chat(request: Request) -> Response:
        message = {"role": "assistant", **next(remaining)}
        return JSONResponse({"id": "a", "choices": [{"message": message}], "usage": ["many"]})

    async with serving(Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])) as url:
        code, out, err = await slipstream(
            "evaluate", "--config", str(sidecar_file), "--cases", str(cases), "--model", f"{url}/v1#odd",
            "--metrics", "recall,tool_accuracy,tokens", "--report", str(tmp_path),
        )  # fmt: skip
    assert code == 0, out + err
    assert means(read(tmp_path), f"{url}/v1#odd")["recall"] == 0


async def test_what_a_server_says_of_a_key_is_not_in_the_report(tmp_path: Path, sidecar_file: Path) -> None:
    cases = tool_cases(tmp_path / "cases.jsonl", 3)
    key = "sk-" + "a1B2" * 10

    async def chat(request: Request) -> Response:
        body = {"error": {"message": f"Incorrect API key: {key} \ud800\x1b"}}
        return Response(json.dumps(body), 401, media_type="application/json")

    async with serving(Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])) as url:
        code, out, _ = await slipstream(
            "evaluate", "--config", str(sidecar_file), "--cases", str(cases), *FEW, "--model", f"{url}/v1#m",
            "--report", str(tmp_path),
        )  # fmt: skip
    assert code == 1
    assert "HTTP 401: Incorrect API key" in out
    for each in (out, *written(tmp_path)):
        assert key not in each
