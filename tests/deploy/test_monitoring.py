"""Prometheus' rules and Grafana's dashboard ask for what a running sidecar tells, and each alert leads to a page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from loops import RunLoop

ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yml").read_text())
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "dashboards" / "slipstream.json").read_text())
DEPLOY = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
SCALE_OUT = (ROOT / "docs" / "scale-out.md").read_text(encoding="utf-8")
METRICS = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
OF_PROMETHEUS = {"up", "ALERTS", "ALERTS_FOR_STATE"}


def rules(kind: str) -> list[dict[str, Any]]:
    return [rule for group in RULES["groups"] for rule in group["rules"] if kind in rule]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[str, str]]:
    """Every query with the place it stands in; Grafana's variables filled in as Grafana would."""
    for rule in (*rules("record"), *rules("alert")):
        yield rule.get("record") or rule["alert"], rule["expr"]
    for place, expression in (
        *((panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]),
        *((each["name"], each["expr"]) for each in DASHBOARD["annotations"]["list"]),
    ):
        yield place, expression.replace("$__rate_interval", "1m").replace("$instance", ".*")


QUERIES = list(queries())


def selectors(node: Any) -> Iterator[Any]:
    """Every vector selector of a parsed expression."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    children = (getattr(node, name, None) for name in ("lhs", "rhs", "expr", "vector_selector", "vs", "param"))
    arguments = getattr(node, "args", None) or ()
    for child in (*children, *arguments):
        if child is not None and not isinstance(child, str):
            yield from selectors(child)


def labels_of_docs() -> dict[str, set[str]]:
    rows = re.findall(r"^\| `(slipstream_\w+)(?:\{([\w,]+)\})?` \|", METRICS, re.MULTILINE)
    return {name: set(filter(None, labels.split(","))) for name, labels in rows}


async def test_every_query_asks_for_metrics_and_labels_that_a_sidecar_tells(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        text = (await loop.client.get("/metrics")).text
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    parts = {"histogram": ("_bucket", "_sum", "_count")}
    scraped = {f"{name}{part}": name for name, kind in types.items() for part in parts.get(kind, ("",))}
    recorded = {rule["record"] for rule in rules("record")}
    documented = labels_of_docs()
    asked = set()
    for place, expression in QUERIES:
        for selector in selectors(promql_parser.parse(expression)):
            asked.add(selector.name)
            assert selector.name in scraped.keys() | recorded | OF_PROMETHEUS, f"{place}: {selector.name}"
            if selector.name in scraped:
                labels = {matcher.name for matcher in selector.matchers.matchers} - {"instance", "job"}
                assert labels <= documented[scraped[selector.name]], f"{place}: {labels}"
    shown = {scraped[name] for name in asked if name in scraped}
    silent = {name for name in documented if name not in shown} - {"slipstream_header_problems_total"}
    assert not silent, "metrics that neither a rule nor a panel looks at"


async def test_what_an_increase_alerts_of_is_shown_at_zero_from_the_start(run_loop: RunLoop) -> None:
    """Prometheus does not see an increase by which a series begins: the first loss would raise no alert."""
    async with run_loop() as loop:
        text = (await loop.client.get("/metrics")).text
    shown: dict[tuple[str, str], set[str]] = {}
    for name, label, value in re.findall(r'^(slipstream_\w+)\{(\w+)="(\w+)"\} 0\.0$', text, re.MULTILINE):
        shown.setdefault((name, label), set()).add(value)
    assert shown["slipstream_commits_total", "state"] == {"delivered", "lost", "failed", "error"}
    for alert in rules("alert"):
        for name, label, values in re.findall(r'increase\((\w+)\{(\w+)!?=~?"([\w|]+)"', alert["expr"]):
            assert set(values.split("|")) <= shown[name, label], alert["alert"]


def test_every_grouping_is_by_a_label_of_its_metric() -> None:
    documented = labels_of_docs()
    for place, expression in QUERIES:
        for labels, name in re.findall(r"by \(([\w, ]+)\) \((?:\w+\()*(slipstream_\w+)", expression):
            name = name if name in documented else re.sub(r"_(bucket|sum|count)$", "", name)
            wanted = set(labels.replace(" ", "").split(",")) - {"instance", "job", "le"}
            assert wanted <= documented[name], f"{place}: {labels}"


def test_gauges_that_all_sidecars_of_a_store_show_alike_are_not_summed() -> None:
    [row] = re.findall(r"^\| `/metrics` \| (.+)$", SCALE_OUT, re.MULTILINE)
    alike = {f"slipstream_{name}" for name in re.findall(r"`(\w+)`", row)}
    assert alike <= labels_of_docs().keys()
    for place, expression in QUERIES:
        summed = re.findall(r"sum (?:by \([\w, ]+\) )?\((\w+)", expression.replace("sum(", "sum ("))
        assert not alike & set(summed), place


def test_a_sidecar_that_prometheus_has_lost_raises_the_alarm_as_one_that_is_down() -> None:
    [down] = [alert for alert in rules("alert") if alert["alert"] == "SlipstreamDown"]
    parsed = promql_parser.parse(down["expr"])
    assert [each.prettify() for each in (parsed.lhs, parsed.rhs)] == [
        'up{job="slipstream"} == 0',
        'absent(up{job="slipstream"})',
    ]
    assert "{{ if $labels.instance }}" in down["annotations"]["summary"], "which the second one does not have"


@pytest.mark.parametrize("alert", rules("alert"), ids=lambda alert: alert["alert"])
def test_each_alert_leads_to_its_heading(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert alert["annotations"]["runbook"] == f"docs/deploy.md#{alert['alert'].lower()}"
    assert alert["annotations"]["summary"]
    section = re.search(rf"^### {alert['alert']}\n+(.+?)(?=^#|\Z)", DEPLOY, re.MULTILINE | re.DOTALL)
    assert section, "no heading of this name in docs/deploy.md"
    assert "**Do:**" in section[1]


def test_no_page_describes_an_alert_that_is_none() -> None:
    headings = set(re.findall(r"^### (Slipstream\w+)$", DEPLOY, re.MULTILINE))
    assert headings == {rule["alert"] for rule in rules("alert")}
    compose = (ROOT / "docker-compose.yml").read_text()
    assert set(re.findall(r"Slipstream[A-Z]\w+", compose)) <= headings


def test_prometheus_scrapes_the_sidecar_that_compose_starts() -> None:
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    assert config["rule_files"] == ["rules.yml"]
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    assert jobs["slipstream"]["static_configs"] == [{"targets": ["sidecar:8100"]}]
    dropped = jobs["slipstream"]["metric_relabel_configs"][0]["regex"]
    assert not any(re.fullmatch(dropped, name) for name in labels_of_docs())


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    [source] = yaml.safe_load((ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + column, place["y"] + line) for column in range(place["w"]) for line in range(place["h"])}
        assert not cells & taken, f"{panel['title']} lies over another panel"
        taken |= cells
    for panel in panels():
        assert all(target["datasource"]["uid"] == source["uid"] for target in panel["targets"])
        assert panel["title"]
