"""The chart's containers against the images and the sidecar: commands, variables, directories."""

from __future__ import annotations

import os

import yaml
from charts import (
    CHART,
    MATRIX,
    ROOT,
    Manifest,
    containers,
    merged,
    of_kind,
    pods,
    template,
)
from composed import most_memory

import slipstream
from slipstream.settings.sidecar import Isolation, Limits


def test_the_chart_fits_the_images() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    docker = ROOT / "deploy" / "docker"
    locked = (docker / "constraints-trinity.txt").read_text(encoding="utf-8")
    assert f"ray=={values['trinity']['rayVersion']}\n" in locked
    for name in ("sidecar", "trinity"):
        dockerfile = (docker / f"{name}.Dockerfile").read_text(encoding="utf-8")
        user = values[name]["user"]
        assert f"USER {user}:{user}" in dockerfile
        assert f"-t {values[name]['image']['repository']}:{slipstream.__version__}" in dockerfile
        assert "/home/slipstream/.cache" in dockerfile or name == "sidecar", "where the chart mounts a volume"
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == slipstream.__version__


def test_no_variable_of_the_chart_is_refused_by_the_sidecar() -> None:
    for _, pod in pods(template(MATRIX["secrets and files"])):
        for container in containers(pod):
            assert not [v["name"] for v in container.get("env", []) if v["name"].startswith("SLIPSTREAM_")]


def test_the_training_container_holds_what_its_configuration_lets_it_take() -> None:
    """Else the kernel ends all of it before a process has come to its own limit."""
    manifests = template(MATRIX["sidecar alone"])
    [deployment] = of_kind(manifests, "Deployment").values()
    [training] = deployment["spec"]["template"]["spec"]["initContainers"]
    config = of_kind(manifests, "ConfigMap")["demo-slipstream-sidecar"]["data"]["sidecar.yaml"]
    isolation, limits = (yaml.safe_load(config).get(section, {}) for section in ("isolation", "limits"))
    needed = most_memory(Isolation.model_validate(isolation), Limits.model_validate(limits))
    assert needed <= int(training["resources"]["limits"]["memory"].removesuffix("Gi")) * 1024**3


def test_who_gave_the_training_container_another_limit_keeps_the_sidecars_own_for_code() -> None:
    own = {**MATRIX["sidecar alone"]}
    own["sidecar"] = {**own["sidecar"], "training": {"resources": {"limits": {"memory": "16Gi"}}}}
    config = of_kind(template(own), "ConfigMap")["demo-slipstream-sidecar"]["data"]["sidecar.yaml"]
    assert "isolation" not in yaml.safe_load(config)


def test_the_module_of_a_reward_stands_where_the_sidecar_looks() -> None:
    manifests = template(MATRIX["secrets and files"])
    [deployment] = of_kind(manifests, "Deployment").values()
    for container in containers(deployment["spec"]["template"]):
        _stands_where_it_looks(container)
    assert "my_rewards.py" in of_kind(manifests, "ConfigMap")["demo-slipstream-sidecar"]["data"]


def test_an_upgrade_goes_on_only_past_a_pod_whose_training_side_stays_up() -> None:
    """A native sidecar without a probe is ready while it runs, however soon it ends."""
    [deployment] = of_kind(template(MATRIX["several sidecars"]), "Deployment").values()
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert deployment["spec"]["minReadySeconds"] == 30
    [alone] = of_kind(template(MATRIX["sidecar alone"]), "Deployment").values()
    assert "minReadySeconds" not in alone["spec"], "nothing waits for the next pod there"


def test_prometheus_asks_the_sidecar_s_port_of_a_pod_and_not_the_agent_s_own() -> None:
    values = merged(MATRIX["monitoring of an injected one"], {"agentExample": {"enabled": True}})
    manifests = template(values)
    [monitor] = of_kind(manifests, "PodMonitor").values()
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    [deployment] = of_kind(manifests, "Deployment").values()
    found = [port for each in containers(deployment["spec"]["template"]) for port in each.get("ports", [])]
    assert found == [{"name": endpoint["port"], "containerPort": 8100}]
    assert endpoint["port"] != "http", "which an agent may call a port of its own"


def test_an_upgrade_leaves_the_service_a_port_that_old_pods_have() -> None:
    manifests = template(MATRIX["several sidecars"])
    [service] = of_kind(manifests, "Service").values()
    assert service["spec"]["ports"][0]["targetPort"] == "http"


def _stands_where_it_looks(container: Manifest) -> None:
    config = next(m for m in container["volumeMounts"] if m["name"] == "slipstream-config")
    assert container["workingDir"] == config["mountPath"] == os.path.dirname(container["command"][-1])
