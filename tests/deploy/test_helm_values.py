"""Wrong values are refused, with an error that names them; every value is explained."""

from __future__ import annotations

import base64
import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from charts import (
    CHART,
    EXPLORER_ELSEWHERE,
    GPU,
    KEYS,
    MATRIX,
    SHARED_STORE,
    Manifest,
    Refused,
    merged,
    of_kind,
    template,
)

from slipstream.access.keyring import Keyring
from slipstream.access.settings import Access

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
VALUES = (CHART / "values.yaml").read_text(encoding="utf-8")


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"sidecars": {}}, "sidecars"),
        ({"sidecar": {"imag": {}}}, "imag"),
        ({"sidecar": {"form": "daemonset"}}, "sidecar.form"),
        ({"sidecar": {"image": {"pullPolicy": "Sometimes"}}}, "pullPolicy"),
        ({"sidecar": {"image": {"digest": "latest"}}}, "digest"),
        ({"sidecar": {"config": {"comit": {}}}}, "comit"),
        ({"sidecar": {"config": {"listen": "0.0.0.0:1"}}}, "listen"),
        ({"sidecar": {"config": {"production": {"api_key": "sk-secret"}}}}, "sidecar.secrets.production_api_key"),
        ({"sidecar": {"config": {"facade": {"api_key": "sk-secret"}}}}, "sidecar.secrets.facade_api_key"),
        ({"sidecar": {"files": {"sidecar.yaml": "x"}}}, "sidecar.files"),
        ({"sidecar": {"secrets": {"k": {"existingSecret": "llm"}}}}, "key"),
        ({"sidecar": {"user": 0}}, "sidecar.user"),
        ({"sidecar": {"store": {"size": "ten"}}}, "size"),
        ({"sidecar": {"training": {"resources": {"limits": {"cpu": None}}}}}, "cpu"),
        ({"sidecar": {"service": {"port": 70000}}}, "port"),
        ({"sidecar": {"env": [{"name": "A B"}]}}, "name"),
        ({"trinity": {"modelPath": ""}}, "trinity.modelPath"),
        ({"trinity": {"overlays": ["three-gpus"]}}, "three-gpus"),
        ({"trinity": {"overlays": ["postgresql"]}}, "overlays"),
        ({"trinity": {"fields": {"cluster": {"gpu_per_node": 2}}}}, "trinity.fields.cluster"),
        ({"explorer": {"gpus": 2}}, "2 engines of 2 GPUs each need 4, and it has 2"),
        ({"trainer": {"nodes": 3}}, "a batch of 32 does not spread evenly over 12 GPUs"),
        ({"trinity": {"rayVersion": "latest"}}, "rayVersion"),
        ({"postgresql": {"bundled": False}}, "postgresql.externalUrlSecret.name"),
        ({"postgresql": {"externalUrlSecret": {"name": "mine"}}}, "either postgresql.bundled"),
        ({"explorer": {"gpus": "4"}}, "explorer.gpus"),
        ({"trainer": {"nodes": 0}}, "trainer.nodes"),
        ({"explorer": {"resources": {"limits": {"nvidia.com/gpu": 4}}}}, "explorer.gpus"),
        ({"agentExample": {"enabled": True}}, "sidecar.form: injected"),
        ({"sidecar": {"config": {"proxy": {"sockets": "/tmp/x"}}}}, "sidecar.config.proxy.sockets"),
        ({"autoscaling": {"enabled": True}}, "the store is SQLite"),
        ({"sidecar": {"replicas": 2}}, "sidecar.replicas: the store is SQLite"),
        ({"explorer": {"enabled": False}}, "sidecar.config.explorer.base_url"),
        ({"sidecar": {"config": {"runs": {"webhook": {"secret": "sk-secret"}}}}}, "sidecar.config.runs.webhook.secret"),
        (
            {"sidecar": {"config": {"webhooks": {"receivers": [{"name": "ops", "secret": "whsec_secret"}]}}}},
            "sidecar.config.webhooks.receivers: the secret of ops",
        ),
        ({"sidecar": {"config": {"store": {"encryption_key": "c2VjcmV0"}}}}, "sidecar.config.store.encryption_key"),
        (
            {"sidecar": {"config": {"store": {"encryption_key": ["${A}", "c2Vj"]}}}},
            "sidecar.config.store.encryption_key",
        ),
        ({"sidecar": {"config": {"serving": {"checkpoints": "/data/job"}}}}, "sidecar.config.serving.checkpoints"),
        ({"networkPolicy": {"agents": []}}, "agents"),
        ({"sidecar": {"config": {"access": {"insecure": True}}}}, "networkPolicy.metrics"),
        ({"sidecar": {"makeKeys": "yes"}}, "makeKeys"),
        ({"monitoring": {"serviceMonitor": {"interval": "often"}}}, "interval"),
        ({"fullnameOverride": "9lives"}, "9lives"),
        ({"fullnameOverride": "n" * 30}, "fullnameOverride"),
    ],
    ids=lambda part: part[:30] if isinstance(part, str) else next(iter(part)),
)
def test_a_wrong_value_is_refused_by_name(wrong: Manifest, told: str) -> None:
    with pytest.raises(Refused) as refused:
        template(merged(GPU, wrong))
    last = told.rpartition(".")[2]
    assert told in str(refused.value) or last in re.split(r"[^\w-]+", str(refused.value)), str(refused.value)
    assert "sk-secret" not in str(refused.value)


@pytest.mark.parametrize("form", ["deployment", "injected"])
def test_the_first_thing_that_is_missing_is_named(form: str) -> None:
    with pytest.raises(Refused, match="give the Explorer's address"):
        template({"sidecar": {"form": form, "secrets": KEYS}})


def test_replicas_share_a_postgresql() -> None:
    shared = {"sidecar": {"config": {"store": {"url": SHARED_STORE}}, "replicas": 3}}
    kinds = {document["kind"]: document for document in template(merged(EXPLORER_ELSEWHERE, shared))}
    assert kinds["Deployment"]["spec"]["replicas"] == 3
    assert kinds["Deployment"]["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert "publishNotReadyAddresses" not in kinds["Service"]["spec"], "one that drains gets no new connections"
    pod = kinds["Deployment"]["spec"]["template"]["spec"]
    [proxy] = pod["containers"]
    assert proxy["lifecycle"]["preStop"], "it goes out of the Service before it drains"
    assert {each["topologyKey"] for each in pod["topologySpreadConstraints"]} == {
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    }
    assert kinds["PodDisruptionBudget"]["spec"]["minAvailable"] == 1
    assert "PersistentVolumeClaim" not in kinds, "pods on two nodes could not both have it"
    assert "persistentVolumeClaim" not in str(kinds["Deployment"])


def test_data_sets_lie_where_the_training_side_can_write() -> None:
    store = {"sidecar": {"config": {"store": {"url": SHARED_STORE}}}}
    claim = {"sidecar": {"datasets": {"existingClaim": "shared"}}}
    beside = "/var/lib/slipstream/datasets"
    for values, directory, claims in (
        ({}, beside, {"/var/lib/slipstream": "demo-slipstream-store"}),
        (claim, beside, {"/var/lib/slipstream": "demo-slipstream-store", beside: "shared"}),
        (store, None, {}),
        (merged(store, claim), beside, {beside: "shared"}),
    ):
        manifests = template(merged(EXPLORER_ELSEWHERE, values))
        given = yaml.safe_load(of_kind(manifests, "ConfigMap")["demo-slipstream-sidecar"]["data"]["sidecar.yaml"])
        assert given["datasets"] == {"directory": directory}
        pod = of_kind(manifests, "Deployment")["demo-slipstream"]["spec"]["template"]["spec"]
        [training], [proxy] = pod["initContainers"], pod["containers"]
        names = {
            v["name"]: v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if "persistentVolumeClaim" in v
        }
        mounted = {m["mountPath"]: names[m["name"]] for m in training["volumeMounts"] if m["name"] in names}
        assert mounted == claims
        assert not [mount for mount in proxy["volumeMounts"] if mount["name"] in names]


@pytest.mark.parametrize(
    "serving",
    [
        {"checkpoints": "/checkpoints/slipstream/policy", "lane": None},
        {"keep": "/checkpoints/kept"},
        {"lane": {"base_url": "http://lane:8020/v1", "directory": "/checkpoints/lane/job"}},
    ],
    ids=["checkpoints", "keep", "lane"],
)
def test_the_training_container_has_the_checkpoints_where_versions_are_found(serving: Manifest) -> None:
    chosen = merged(GPU, {"sidecar": {"config": {"serving": serving}}})
    for values, found in (
        (chosen, "demo-slipstream-checkpoints"),
        (merged(chosen, {"trinity": {"checkpoints": {"existingClaim": "shared"}}}), "shared"),
        (GPU, None),
    ):
        pod = of_kind(template(values), "Deployment")["demo-slipstream"]["spec"]["template"]["spec"]
        [training], [proxy] = pod["initContainers"], pod["containers"]
        volumes = {v["name"]: v["persistentVolumeClaim"] for v in pod["volumes"] if "persistentVolumeClaim" in v}
        mounted = {m["mountPath"]: volumes.get(m["name"]) for m in training["volumeMounts"]}
        assert mounted.get("/checkpoints") == (None if found is None else {"claimName": found})
        assert "/checkpoints" not in {m["mountPath"] for m in proxy["volumeMounts"]}


def test_versions_need_a_claim_of_the_checkpoints() -> None:
    folder = {"sidecar": {"config": {"serving": {"checkpoints": "/checkpoints/slipstream/policy"}}}}
    with pytest.raises(Refused, match=r"sidecar\.config\.serving: .*trinity\.checkpoints\.existingClaim"):
        template(merged(EXPLORER_ELSEWHERE, folder))
    template(merged(EXPLORER_ELSEWHERE, folder, {"trinity": {"checkpoints": {"existingClaim": "shared"}}}))


def test_values_of_a_release_before_data_sets_are_taken() -> None:
    """`helm upgrade --reuse-values` gives the chart the values of the release before, without what is new."""
    kept = {"sidecar": {"datasets": None}}
    assert template(merged(EXPLORER_ELSEWHERE, kept)) == template(EXPLORER_ELSEWHERE)


def test_the_algorithm_of_an_overlay_reaches_the_sidecar() -> None:
    manifests = template(merged(GPU, {"trinity": {"overlays": ["ppo"]}}))
    given = yaml.safe_load(of_kind(manifests, "ConfigMap")["demo-slipstream-sidecar"]["data"]["sidecar.yaml"])
    assert given["explorer"]["algorithm_type"] == "ppo", "else groups of one are warned of"


def test_the_one_pod_with_sqlite_gets_traffic_while_its_training_container_starts_again() -> None:
    [service] = of_kind(template(EXPLORER_ELSEWHERE), "Service").values()
    assert service["spec"]["publishNotReadyAddresses"] is True


def test_replicas_that_share_a_postgresql_may_grow() -> None:
    shared = {"sidecar": {"config": {"store": {"url": SHARED_STORE}}}, "autoscaling": {"enabled": True}}
    kinds = {document["kind"]: document for document in template(merged(EXPLORER_ELSEWHERE, shared))}
    assert kinds["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == "demo-slipstream"
    assert "replicas" not in kinds["Deployment"]["spec"]
    [metric] = kinds["HorizontalPodAutoscaler"]["spec"]["metrics"]
    assert metric["containerResource"]["container"] == "slipstream-proxy"


def _keys(schema: Manifest, path: tuple[str, ...] = ()) -> Any:
    for key, child in schema.get("properties", {}).items():
        if path == ("sidecar", "config") or key == "global":
            continue
        yield (*path, key)
        yield from _keys(child, (*path, key))


def test_every_value_has_a_default_and_stands_in_the_schema() -> None:
    def given(tree: Any, path: tuple[str, ...] = ()) -> Any:
        for key, value in tree.items():
            yield (*path, key)
            if isinstance(value, dict) and (*path, key) in closed:
                yield from given(value, (*path, key))

    def closed_ones(schema: Manifest, path: tuple[str, ...] = ()) -> Any:
        if schema.get("additionalProperties") is False and path != ("sidecar", "config"):
            yield path
        for key, child in schema.get("properties", {}).items():
            yield from closed_ones(child, (*path, key))

    closed = set(closed_ones(SCHEMA))
    known = {path for path in _keys(SCHEMA) if path[:-1] in closed}
    assert set(given(yaml.safe_load(VALUES))) == known


def test_each_section_of_the_values_is_explained() -> None:
    for name in yaml.safe_load(VALUES):
        assert re.search(rf"^#[^\n]+\n{name}:", VALUES, re.MULTILINE), f"{name} has no comment above it"


def test_the_matrix_renders_with_every_switch() -> None:
    """A switch that no test turns on would be a template that nobody has seen."""
    switches = {path for path in _keys(SCHEMA) if path[-1] in ("enabled", "bundled")}
    on = set()
    for values in MATRIX.values():
        for path in switches:
            tree: Any = values
            for key in path:
                tree = tree.get(key, {}) if isinstance(tree, dict) else {}
            if tree is True:
                on.add(path)
    assert switches - on == {("networkPolicy", "enabled")}, "on by itself"


def test_keys_come_from_a_secret_and_prometheus_has_one() -> None:
    chosen = {"sidecar": {"secrets": KEYS}, "monitoring": {"serviceMonitor": {"enabled": True}}}
    manifests = template(merged(EXPLORER_ELSEWHERE, chosen))
    [config] = [text for name, text in of_kind(manifests, "ConfigMap").items() if name.endswith("-sidecar")]
    settings = yaml.safe_load(config["data"]["sidecar.yaml"])
    assert settings["access"] == {"keys_file": "/run/secrets/slipstream/access_keys"}
    [monitor] = of_kind(manifests, "ServiceMonitor").values()
    told = monitor["spec"]["endpoints"][0]["authorization"]["credentials"]
    assert told == {"name": "slipstream-keys", "key": "metrics_key"}


def test_without_keys_the_chart_is_refused_and_says_what_to_do() -> None:
    nothing = {"sidecar": {"config": EXPLORER_ELSEWHERE["sidecar"]["config"]}}
    with pytest.raises(Refused, match=r"sidecar\.secrets\.access_keys: expected a Secret .*makeKeys.*insecure"):
        template(nothing)
    keys = {"sidecar": {"secrets": {"access_keys": KEYS["access_keys"]}}}
    monitored = merged(nothing, keys, {"monitoring": {"serviceMonitor": {"enabled": True}}})
    with pytest.raises(
        Refused, match=r"sidecar\.secrets\.metrics_key: expected a Secret with a key of the role metrics"
    ):
        template(monitored)


@pytest.mark.slow
def test_no_rendered_configuration_is_insecure_unless_its_values_say_so() -> None:
    for name, values in MATRIX.items():
        for config in of_kind(template(values), "ConfigMap").values():
            if text := config["data"].get("sidecar.yaml"):
                assert yaml.safe_load(text)["access"].get("insecure", False) == (name == "no keys"), name


def test_keys_that_the_chart_makes_open_what_their_role_may(tmp_path: Path) -> None:
    made = of_kind(template(MATRIX["keys of the chart"]), "Secret")["demo-slipstream-keys"]
    assert made["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    (tmp_path / "access_keys").write_text(made["stringData"]["access_keys"])
    ring = Keyring(Access(keys_file=tmp_path / "access_keys"))
    may = {
        name: ring.holder(made["stringData"][f"{name}_key"].encode()).roles for name in ("agent", "admin", "metrics")
    }
    assert may == {"agent": {"proxy", "feedback"}, "admin": {"admin"}, "metrics": {"metrics"}}


def test_keys_that_were_made_stay_over_an_upgrade() -> None:
    """Only a cluster can answer `lookup`, so the template is rendered with an answer in its place."""
    old = {"agent_key": f"slp_{'a' * 43}", "admin_key": f"slp_{'b' * 43}", "metrics_key": f"slp_{'c' * 43}"}
    answer = " ".join(f'"{name}" "{base64.b64encode(key.encode()).decode()}"' for name, key in old.items())
    text = (CHART / "templates" / "keys.yaml").read_text(encoding="utf-8")
    lookup = '(lookup "v1" "Secret" .Release.Namespace $name)'
    assert lookup in text
    with tempfile.TemporaryDirectory() as folder:
        chart = shutil.copytree(CHART, Path(folder) / "slipstream")
        (chart / "templates" / "keys.yaml").write_text(text.replace(lookup, f'(dict "data" (dict {answer}))'))
        made = of_kind(template(MATRIX["keys of the chart"], chart), "Secret")["demo-slipstream-keys"]
    assert old.items() <= made["stringData"].items()
