"""The documentation cannot rot: routes, metrics and commands are all there and no others, examples run, links lead.

Configuration keys, strategies, calculators, and capture's headers and reasons have such tests beside their own.
"""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from documented import lists_all
from fastapi.routing import APIRoute
from loops import Loop, RunLoop
from prometheus_client.parser import text_string_to_metric_families
from serving import until
from typer.main import get_command

from slipstream import api
from slipstream.cli import app
from slipstream.doctor import live

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
API = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
METRICS = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
OUTSIDE_THE_SCHEMA = {"GET /healthz", "GET /docs", "GET /openapi.json"}


class Example(NamedTuple):
    """A curl command of docs/api.md, with the answer that the page shows for it, in its language."""

    command: str
    status: int
    language: str
    answer: str


def examples() -> Iterator[Example]:
    for section in re.split(r"^##+ ", API, flags=re.MULTILINE):
        blocks = FENCE.findall(section)
        for place, (language, text) in enumerate(blocks):
            if language == "sh":
                shown = blocks[place + 1] if place + 1 < len(blocks) else ("", "")
                said = re.search(r"answer is (20\d)", section)
                yield Example(text.replace("\\\n", " "), int(said[1]) if said else 200, *shown)


async def curl(client: httpx.AsyncClient, command: str) -> httpx.Response:
    """What curl would do, for the options that the page uses: a fresh machine need not have it."""
    program, *words = shlex.split(command)
    assert program == "curl"
    method, headers, body, url = None, [], None, ""
    for word in (remaining := iter(words)):
        if word == "-X":
            method = next(remaining)
        elif word == "-H":
            name, _, value = next(remaining).partition(": ")
            headers.append((name, value))
        elif word == "-d":
            body = next(remaining)
        else:
            url = word
    path = url.removeprefix("http://127.0.0.1:8100")
    return await client.request(method or ("GET" if body is None else "POST"), path, content=body, headers=headers)


def keys(value: Any) -> Any:
    """The value without its scalars: what a reader of the page relies on."""
    if isinstance(value, dict):
        return {key: keys(item) for key, item in value.items()}
    return [keys(item) for item in value] if isinstance(value, list) else None


async def played(loop: Loop) -> None:
    """What counts something under every metric that has labels. The queue of runs must have room for one."""
    loop.explorer.hold.clear()
    await loop.chat("hello", {"x-slipstream-metadata": "not json"})
    await until(lambda: loop.explorer.chats)
    await loop.chat("hello", {"x-slipstream-select": "always"})
    await loop.chat("hello", store=False)

    async def counted() -> bool:
        text = (await loop.client.get("/metrics")).text
        dropped = 'slipstream_dropped_total{cause="runs_queue_full"} 1.0'
        return dropped in text and "slipstream_calls_not_captured_total{" in text

    await until(counted, what="a dropped run and a call that was not captured are counted")
    loop.explorer.hold.set()
    await until(lambda: loop.ready(1))
    pair = (await loop.client.get("/preferences/next?annotator=ann")).json()["pair"]
    await loop.client.post("/preferences", json={"pair_id": pair["pair_id"], "choice": "tie", "annotator": "ann"})
    await loop.commit()
    await loop.client.post("/explorer/v1/chat/completions", json={"messages": []})
    await loop.client.post("/runs/t", json={"runs": 1})
    await loop.client.get("/runs/t/0/v1/models")
    await loop.client.post("/runs/t/0/finish", json={})
    await loop.client.get("/runs/t/0/v1/models")
    await loop.client.post("/explorer/feedback", json={"msg_ids": ["nobody's"], "reward": 1})


def _named(shown: dict[str, Any], answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The ids that the page shows, with those that the sidecar gave."""
    for of_page, of_answer in ((shown, answer), (shown.get("pair") or {}, answer.get("pair") or {})):
        yield from ((of_page[name], of_answer[name]) for name in ("id", "pair_id") if name in of_page)


async def test_each_example_of_the_api_does_what_the_page_shows(run_loop: RunLoop) -> None:
    ids: dict[str, str] = {}
    ready = 0
    async with run_loop(runs={"repeat_time": 2}) as loop:
        for example in examples():
            command = example.command
            for shown_id, real_id in ids.items():
                command = command.replace(shown_id, real_id)
            response = await curl(loop.client, command)
            assert response.status_code == example.status, (command, response.text)
            if example.language == "json":
                shown, answer = json.loads(example.answer), response.json()
                assert keys(answer) == keys(shown), command
                for told, given in _named(shown, answer):
                    ids[told] = given
            else:
                assert set(example.answer.splitlines()) <= set(response.text.splitlines()), command
            if "8100/v1/" in command:
                ready = 2
            elif "/finish" in command:
                ready += 1
            elif "/commit" in command:
                ready = 0
            await until(partial(loop.ready, ready))
    assert len(ids) == 5, "the receipt of a feedback, that of a mark, two answers of the policy, and a pair"


async def test_every_route_and_field_is_documented_and_no_other(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        schema = (await loop.client.get("/openapi.json")).json()
    routes = {f"{method.upper()} {path}" for path, methods in schema["paths"].items() for method in methods}
    documented = re.findall(r"^## `(.+)`$", API, re.MULTILINE)
    lists_all("docs/api.md, headings", documented, routes | OUTSIDE_THE_SCHEMA)
    assert not _of_modules() - routes, "routes of a module that no list in api/control.py names"

    for route, operation in _operations(schema):
        section = _section(f"`{route}`")
        asked = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
        missing = sorted(name for name in asked if f"`{name}`" not in section)
        assert not missing, f"docs/api.md, {route} lacks the parameters {', '.join(missing)}"
        fields = _fields(schema, operation)
        rows = re.findall(r"^\| `(\w+)` \| (.+)$", section, re.MULTILINE) if fields else []
        lists_all(f"docs/api.md, fields of {route}", (name for name, _ in rows), fields)
        for name, row in rows:
            missing = [limit for limit in _limits(fields[name]) if limit not in re.findall(r"\w+(?:\.\d+)?", row)]
            assert not missing, f"{route} {name}: {missing}"


def _operations(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each route, as `POST /marks`, with its part of the schema."""
    for path, methods in schema["paths"].items():
        yield from ((f"{method.upper()} {path}", operation) for method, operation in methods.items())


def _fields(schema: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any]:
    """The schema of each field of a route's body; of none where it takes no JSON."""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    # one that may be left out is this or null
    body = next((each for each in body.get("anyOf", ()) if each.get("type") != "null"), body)
    if "$ref" in body:
        body = schema["components"]["schemas"][body["$ref"].rpartition("/")[2]]
    fields: dict[str, Any] = body.get("properties", {})
    return fields


def _of_modules() -> set[str]:
    """Routes of all modules of the control API that the schema describes."""
    modules = (importlib.import_module(f"{api.__name__}.{info.name}") for info in pkgutil.iter_modules(api.__path__))
    routes = (route for module in modules if hasattr(module, "router") for route in module.router.routes)
    return {
        f"{method} {route.path_format}"
        for route in routes
        if isinstance(route, APIRoute) and route.include_in_schema
        for method in route.methods
    }


def _section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", API, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def _limits(field: Any) -> Iterator[str]:
    """Every bound of a JSON schema, however deep, as a page would write it."""
    for key, value in field.items() if isinstance(field, dict) else enumerate(field):
        if key in ("maxLength", "maxItems", "minimum", "maximum"):
            yield f"{value:f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
        elif key == "enum":
            yield from value
        elif isinstance(value, dict | list):
            yield from _limits(value)


async def test_every_metric_and_label_is_documented_and_no_other(run_loop: RunLoop) -> None:
    limits = {"budget": {"requests_per_hour": 1000, "tokens_per_hour": 10**6}}
    rewards = {"calculators": [{"constant": {"value": 0.5}}], "judge_calls_per_hour": 1000}
    webhooks = {"receivers": [{"name": "ops", "url": "http://127.0.0.1:9", "secret": "s"}]}
    async with run_loop(runs={"queue": 1, **limits}, rewards=rewards, webhooks=webhooks) as loop:
        await played(loop)
        text = (await loop.client.get("/metrics")).text
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    scraped = {name: kind for name, kind in types.items() if not name.endswith("_created")}
    rows = re.findall(r"^\| `(\w+)(?:\{([\w,]+)\})?` \| (\w+) \| (.+)$", METRICS, re.MULTILINE)
    lists_all("docs/metrics.md", (name for name, *_ in rows), scraped)
    assert {name: kind for name, _, kind, _ in rows} == scraped

    documented = {name: (labels, meaning) for name, labels, _, meaning in rows}
    for family in text_string_to_metric_families(text):
        name = family.name if family.name in documented else f"{family.name}_total"
        if family.name.endswith("_created"):
            continue
        labels, meaning = documented[name]
        assert family.samples, f"{name}: played() counts nothing under it"
        for sample in family.samples:
            given = {label: value for label, value in sample.labels.items() if label != "le"}
            assert sorted(given) == sorted(filter(None, labels.split(","))), name
            for label, value in given.items():
                assert f"`{value}`" in meaning or f"[{label}]" in meaning, f"{name}: {value}"


def test_no_page_speaks_of_a_metric_that_is_none() -> None:
    known = set(re.findall(r"slipstream_\w+", METRICS))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        told = {name.partition("{")[0] for name in re.findall(r"`(slipstream_\w+_(?:total|seconds)[^`]*)`", text)}
        assert told <= known, page.name


def test_every_command_is_documented_and_no_other() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    commands = set(_commands(get_command(app)))
    rows = re.findall(r"^\| `slipstream (\w.+?)`", page, re.MULTILINE)
    named = [
        max((command for command in commands if f"{row} ".startswith(f"{command} ")), key=len, default=row)
        for row in rows
    ]
    lists_all("docs/operations.md, commands", named, commands)
    first_words = {command.split()[0] for command in commands}
    for text in (page.read_text(encoding="utf-8") for page in PAGES):
        assert set(re.findall(r"(?:^|`)slipstream ([a-z]+)", text, re.MULTILINE)) <= first_words


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    children = getattr(command, "commands", None)
    if children is None or getattr(command, "invoke_without_command", False):
        yield " ".join(path)
    for name, child in (children or {}).items():
        yield from _commands(child, (*path, name))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (anchor and anchor not in _anchors(file)):
            dead.append(target)
    assert dead == []


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    headings = HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_no_page_names_a_release_that_is_not_there() -> None:
    """Where there are no tags, such as in a copy of the files, no page may name one."""
    known = subprocess.run(["git", "tag"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    named = re.compile(r"git (?:checkout|switch --detach|clone --branch) (v?\d[\w.-]*)")
    for page in PAGES:
        assert set(named.findall(page.read_text(encoding="utf-8"))) <= set(known), page.name


def test_every_live_problem_is_named_with_its_metric() -> None:
    row = next(line for line in METRICS.splitlines() if "slipstream_problems{code}" in line)
    assert re.findall(r"`(live\.[a-z_]+)`", row) == [problem.code for problem in live.PROBLEMS]


def test_the_page_of_trials_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "trials.md").read_text(encoding="utf-8")
    tests = set(re.findall(r"`(tests/[\w/]+\.py)`", page))
    assert len(tests) > 40
    assert [name for name in sorted(tests) if not (ROOT / name).is_file()] == []


def test_pages_name_make_targets_that_exist() -> None:
    made = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    for page in PAGES:
        targets = set(re.findall(r"(?:^|`)make\s+([a-z][\w-]+)", page.read_text(encoding="utf-8"), re.M))
        assert targets <= made, page.name


def test_the_page_of_the_tests_lists_each_target_that_tests() -> None:
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    made = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    listed = set(re.findall(r"^\| `make ([\w-]+)`", page, re.M))
    assert listed == {target for target in made if target.startswith("test")} | {"check", "lint"}


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/architecture.md", "docs/testing.md"])
def test_pages_on_the_code_name_files_that_exist(name: str) -> None:
    text = FENCE.sub("", (ROOT / name).read_text(encoding="utf-8"))
    paths = set(re.findall(r"`((?:[\w.]+/)+[\w.]*)`", text))
    roots = (ROOT, ROOT / "service" / "slipstream", ROOT / "client" / "slipstream_client", ROOT / "tests")
    assert paths
    assert [path for path in sorted(paths) if not any((root / path).exists() for root in roots)] == []


def test_every_decision_is_in_the_list_and_fits_on_a_page() -> None:
    folder = ROOT / "docs" / "adr"
    pages = sorted(page.name for page in folder.glob("0*.md"))
    assert sorted(re.findall(r"\((0\d+-[\w-]+\.md)\)", (folder / "README.md").read_text(encoding="utf-8"))) == pages
    for page in pages:
        text = (folder / page).read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 60, page
        assert re.findall(r"^\*\*(Context|Decision|Consequences)\.\*\*", text, re.M) == [
            "Context",
            "Decision",
            "Consequences",
        ], page


def test_the_ways_through_the_code_name_what_is_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    steps = re.findall(r"^\| .+ \| `([\w/]+\.py)` `([\w.]+)` \|$", page, re.M)
    assert len(steps) > 10
    for file, name in steps:
        body = ast.parse((ROOT / "service" / "slipstream" / file).read_text(encoding="utf-8")).body
        for part in name.split("."):
            found = [each for each in body if getattr(each, "name", None) == part]
            assert found, f"{file} has no {name}"
            body = getattr(found[0], "body", [])
