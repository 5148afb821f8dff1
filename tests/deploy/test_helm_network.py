"""Who may reach whom, by the chart's network policies."""

from __future__ import annotations

import pytest
from charts import (
    EXPLORER_ELSEWHERE,
    MATRIX,
    Manifest,
    containers,
    merged,
    of_kind,
    pods,
    selects,
    template,
)


def test_only_a_sidecar_reaches_the_explorer() -> None:
    for name in ("network policies", "network policies of an injected one"):
        manifests = template(MATRIX[name])
        policies = of_kind(manifests, "NetworkPolicy")
        everything = dict(pods(manifests))
        into = {role: _into(policies, everything, role) for role in ("explorer", "trainer", "postgresql")}
        carriers = {w for w, pod in everything.items() if any(c["name"] == "slipstream-proxy" for c in containers(pod))}
        assert carriers
        assert into["explorer"][8010] == carriers
        assert into["explorer"].keys() == {8010, 8265}, "the other is for the operator, which is no pod of the chart"
        assert into["explorer"][8265] == into["trainer"][8265] == set()
        assert {where.split("-")[-2] for where in into["postgresql"][5432]} == {"explorer", "trainer"}


def _into(policies: dict[str, Manifest], everything: dict[str, Manifest], role: str) -> dict[int, set[str]]:
    """Which pods of the chart reach which port of the role's pods."""
    [policy] = [policy["spec"] for name, policy in policies.items() if name.endswith(f"-{role}")]
    assert "Ingress" in policy["policyTypes"]
    reached: dict[int, set[str]] = {}
    for rule in policy["ingress"]:
        inside = [peer["podSelector"]["matchLabels"] for peer in rule["from"] if "namespaceSelector" not in peer]
        found = {where for where, pod in everything.items() if any(selects(labels, pod) for labels in inside)}
        for port in rule.get("ports", []):
            reached.setdefault(port["port"], set()).update(found)
    return reached


@pytest.mark.parametrize(
    ("config", "ports"),
    [
        ({}, {443}),
        ({"base_url": "https://llm.example/v1"}, {443}),
        ({"base_url": "http://llm.example/v1"}, {80}),
        ({"base_url": "http://vllm.models:8000/v1"}, {8000}),
        ({"base_url": "http://vllm.models:8000"}, {8000}),
        ({"base_url": "${PRODUCTION_URL}"}, {443}),
    ],
    ids=str,
)
def test_the_sidecar_may_go_to_production_and_the_explorer(config: Manifest, ports: set[int]) -> None:
    values = merged(EXPLORER_ELSEWHERE, {"sidecar": {"config": {"production": config}}})
    policy = of_kind(template(values), "NetworkPolicy")["demo-slipstream-sidecar"]["spec"]
    assert {port["port"] for rule in policy["egress"] for port in rule["ports"]} == {53, 8010} | ports


@pytest.mark.parametrize(
    ("config", "ports"),
    [
        ({"store": {"url": "sqlite+aiosqlite:////var/lib/slipstream/other.db"}}, set()),
        ({"store": {"url": "postgresql+asyncpg://u:12@db.example/slipstream"}}, {5432}),
        ({"store": {"url": "postgresql+asyncpg://u:p@db.example:6432/slipstream?ssl=require"}}, {6432}),
        ({"store": {"url": "postgresql+asyncpg://db.example:6432"}}, {6432}),
        ({"store": {"url": "${STORE_URL}"}}, {5432}),
        ({"store": {"url": "${file:/run/secrets/slipstream/store_url}"}}, {5432}),
        ({"serving": {"mode": "on", "lane": {"base_url": "http://lane.models:8000/v1"}}}, {8000}),
        ({"serving": {"mode": "off", "lane": None}}, set()),
    ],
    ids=str,
)
def test_the_sidecar_may_go_to_its_postgresql_and_to_the_lane(config: Manifest, ports: set[int]) -> None:
    values = merged(EXPLORER_ELSEWHERE, {"sidecar": {"config": config}})
    policy = of_kind(template(values), "NetworkPolicy")["demo-slipstream-sidecar"]["spec"]
    assert {port["port"] for rule in policy["egress"] for port in rule["ports"]} == {53, 8010, 443} | ports


HISTORY = "postgresql+asyncpg://slipstream@history.example:6432/slipstream"


@pytest.mark.parametrize(
    ("url", "ports"), [(HISTORY, {6432}), ("${HISTORY_URL}", {5432}), ("sqlite+aiosqlite:////checkpoints/h.db", set())]
)
def test_the_sidecar_may_go_to_the_explorers_history(url: str, ports: set[int]) -> None:
    values = merged(EXPLORER_ELSEWHERE, {"sidecar": {"config": {"explorer": {"history_url": url}}}})
    policy = of_kind(template(values), "NetworkPolicy")["demo-slipstream-sidecar"]["spec"]
    assert {port["port"] for rule in policy["egress"] for port in rule["ports"]} == {53, 8010, 443} | ports


@pytest.mark.parametrize("name", ["gpu", "agent example"])
def test_the_database_lets_a_sidecar_in_that_repairs_from_the_explorers_history(name: str) -> None:
    values = merged(MATRIX[name], {"sidecar": {"config": {"explorer": {"history_url": HISTORY}}}})
    manifests = template(values)
    everything = dict(pods(manifests))
    carriers = {w for w, pod in everything.items() if any(c["name"] == "slipstream-proxy" for c in containers(pod))}
    reached = _into(of_kind(manifests, "NetworkPolicy"), everything, "postgresql")[5432]
    assert {where for where in reached if not where.startswith("RayJob/")} == carriers != set()


def test_agents_need_a_label_to_reach_the_sidecar() -> None:
    policy = of_kind(template(MATRIX["network policies"]), "NetworkPolicy")["demo-slipstream-sidecar"]["spec"]
    agents, metrics = policy["ingress"]
    assert agents["from"] == [{"podSelector": {"matchLabels": {"slipstream-agent": "true"}}}]
    [prometheus] = metrics["from"]
    assert prometheus.keys() == {"namespaceSelector", "podSelector"}, "not all that runs in the namespace monitoring"
    assert [port["port"] for rule in (agents, metrics) for port in rule["ports"]] == [8100, 8100]
    assert policy["policyTypes"] == ["Ingress", "Egress"]


def test_the_injected_sidecar_is_closed_while_its_agent_stays_open() -> None:
    manifests = template(MATRIX["network policies of an injected one"])
    policy = of_kind(manifests, "NetworkPolicy")["demo-slipstream-sidecar"]["spec"]
    open_to_all = [port for rule in policy["ingress"] if "from" not in rule for port in rule["ports"]]
    assert all(not port["port"] <= 8100 <= port["endPort"] for port in open_to_all if port["protocol"] == "TCP")
    assert any(port["port"] <= 8080 <= port["endPort"] for port in open_to_all)
    assert policy["policyTypes"] == ["Ingress"], "where the agent may go is its own affair"


@pytest.mark.parametrize("metrics", [[{"namespaceSelector": {}}], []], ids=["metrics", "none"])
def test_who_denies_by_default_opens_nothing_of_an_agent_with_an_injected_sidecar(metrics: list[Manifest]) -> None:
    closed = {"networkPolicy": {"agentIngress": [], "metrics": metrics}}
    manifests = template(merged(MATRIX["network policies of an injected one"], closed))
    policy = of_kind(manifests, "NetworkPolicy")["demo-slipstream-sidecar"]["spec"]
    wanted = [{"from": metrics, "ports": [{"port": 8100, "protocol": "TCP"}]}] if metrics else []
    assert policy["ingress"] == wanted
    assert policy["policyTypes"] == ["Ingress"], "without a rule it closes all"
