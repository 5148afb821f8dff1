"""What an operator relies on in the rendered chart: nothing runs as root, and everything that is named is there."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from charts import (
    CHART,
    GPU,
    MATRIX,
    SHARED_STORE,
    Manifest,
    containers,
    merged,
    of_kind,
    pods,
    selects,
    template,
)

from slipstream import shutdown
from slipstream.access.keys import new_key
from slipstream.settings.sidecar import Settings
from slipstream.settings.source import load_settings
from slipstream.trinity.document import load_document

# What a user of the chart brings along, in the values of the matrix.
BROUGHT = {
    "Secret": {
        "llm": {"api-key"},
        "facade": {"token"},
        "buffer": {"dsn"},
        "my-postgresql": {"password", "url"},
        "slipstream-keys": {"access_keys", "metrics_key"},
    },
    "PersistentVolumeClaim": {"models", "my-store", "my-datasets", "my-checkpoints"},
}

ROLES = ("explorer", "trainer", "postgresql", "agent")

# Warnings about addresses that other pods can reach, as a Service must; the network policies answer them.
FOR_THE_NETWORK = {"files.explorer_listens_everywhere", "files.open_to_everybody"}


@pytest.fixture(scope="module", params=MATRIX, ids=lambda name: name.replace(" ", "-"))
def manifests(request: pytest.FixtureRequest) -> list[Manifest]:
    return template(MATRIX[request.param])


@pytest.mark.sampled
def test_no_container_is_root_or_may_become_it(manifests: list[Manifest]) -> None:
    for where, pod in pods(manifests):
        assert pod["spec"]["automountServiceAccountToken"] is False, where
        for container in containers(pod):
            allowed = container["securityContext"]
            assert allowed["runAsNonRoot"], where
            assert allowed["runAsUser"] > 0, where
            assert allowed["readOnlyRootFilesystem"], where
            assert allowed["allowPrivilegeEscalation"] is False, where
            assert allowed["capabilities"] == {"drop": ["ALL"]}, where
            assert allowed["seccompProfile"] == {"type": "RuntimeDefault"}, where


def test_each_container_has_limits_requests_and_probes(manifests: list[Manifest]) -> None:
    for where, pod in pods(manifests):
        for container in containers(pod):
            for kind in ("limits", "requests"):
                assert {"cpu", "memory"} <= container["resources"][kind].keys(), where
            # KubeRay puts Ray's own probes into a Ray container; one that waits for the Explorer's port would keep the
            # job from ever being submitted. The example's agent is not ours to probe. The training side must not be
            # able to make the pod unready.
            if container["name"] not in ("ray", "agent", "slipstream-training"):
                assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys(), where


def test_every_reference_leads_to_something(manifests: list[Manifest]) -> None:
    there: dict[str, dict[str, set[str]]] = {kind: {} for kind in ("ConfigMap", "Secret", "PersistentVolumeClaim")}
    for kind, objects in there.items():
        for name, document in of_kind(manifests, kind).items():
            objects[name] = {*document.get("data", {}), *document.get("stringData", {})}
    secrets = there["Secret"] | BROUGHT["Secret"]
    claims = set(there["PersistentVolumeClaim"]) | set(BROUGHT["PersistentVolumeClaim"])
    for where, pod in pods(manifests):
        mounted = {volume["name"] for volume in pod["spec"]["volumes"]}
        mounted |= {claim["metadata"]["name"] for claim in _claim_templates(manifests, where)}
        for volume in pod["spec"]["volumes"]:
            if "configMap" in volume:
                assert volume["configMap"]["name"] in there["ConfigMap"], where
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in claims, where
            for secret in _secrets(volume):
                name = secret.get("name") or secret["secretName"]
                assert {item["key"] for item in secret["items"]} <= secrets[name], where
        for container in containers(pod):
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= mounted, where
            for variable in container.get("env", []):
                if source := variable.get("valueFrom", {}).get("secretKeyRef"):
                    assert source["key"] in secrets[source["name"]], where
        if account := pod["spec"].get("serviceAccountName"):
            assert account in of_kind(manifests, "ServiceAccount"), where


def _claim_templates(manifests: list[Manifest], where: str) -> list[Manifest]:
    kind, name = where.split("/")[:2]
    claims: list[Manifest] = of_kind(manifests, kind)[name]["spec"].get("volumeClaimTemplates", [])
    return claims


def _secrets(volume: Manifest) -> list[Manifest]:
    projected = [source["secret"] for source in volume.get("projected", {}).get("sources", [])]
    return [*projected, *([volume["secret"]] if "secret" in volume else [])]


def test_every_selector_finds_the_pods_it_means_and_no_others(manifests: list[Manifest]) -> None:
    everything = dict(pods(manifests))
    for document in manifests:
        kind, name, spec = document["kind"], document["metadata"]["name"], document.get("spec", {})
        selector = spec.get("selector") or {}
        if kind == "ServiceMonitor":
            services = of_kind(manifests, "Service").values()
            assert [s["metadata"]["name"] for s in services if selects(selector["matchLabels"], s)] == [name]
            continue
        if kind == "Service":
            wanted, port = selector, spec["ports"][0]["targetPort"]
        elif kind in ("Deployment", "StatefulSet", "PodDisruptionBudget", "PodMonitor"):
            wanted, port = selector["matchLabels"], None
        elif kind == "NetworkPolicy":
            wanted, port = spec["podSelector"]["matchLabels"], None
        else:
            continue
        found = [where for where, pod in everything.items() if selects(wanted, pod)]
        role = next((role for role in ROLES if name.endswith(f"-{role}")), "")
        if found or kind in ("Service", "Deployment", "StatefulSet"):
            assert found, f"{kind}/{name} selects nothing"
            assert all(role in where for where in found), f"{kind}/{name} selects {found}"
        if port:
            ports = {p["name"] for where in found for c in containers(everything[where]) for p in c.get("ports", [])}
            assert port in ports or (port, role) == (8010, "explorer"), f"{kind}/{name}"


def test_kuberay_finds_the_dashboard_where_it_submits_the_job(manifests: list[Manifest]) -> None:
    """KubeRay's Service of the head has Ray's own ports only while the container declares none (getServicePorts)."""
    for job in of_kind(manifests, "RayJob").values():
        [ray] = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
        assert not ray.get("ports")


def test_ray_has_a_place_for_each_worker_of_verl(manifests: list[Manifest]) -> None:
    """KubeRay would count places by the limit of CPUs, and with too few Trinity waits for ever."""
    for job in of_kind(manifests, "RayJob").values():
        cluster = job["spec"]["rayClusterSpec"]
        for group in [cluster["headGroupSpec"], *cluster.get("workerGroupSpecs", [])]:
            [ray] = group["template"]["spec"]["containers"]
            assert group["rayStartParams"]["num-cpus"] == str(8 + 4 * ray["resources"]["limits"]["nvidia.com/gpu"])


def test_one_sidecar_owns_the_store_and_has_the_time_that_its_end_takes(manifests: list[Manifest]) -> None:
    carriers = [
        document
        for document in manifests
        if document["kind"] == "Deployment"
        if any(container["name"] == "slipstream-proxy" for container in containers(document["spec"]["template"]))
    ]
    assert len(carriers) <= 1
    for deployment in carriers:
        pod = deployment["spec"]["template"]["spec"]
        if any(volume["name"] == "slipstream-store" for volume in pod["volumes"]):
            assert deployment["spec"]["replicas"] == 1
            assert deployment["spec"]["strategy"] == {"type": "Recreate"}
        assert pod["terminationGracePeriodSeconds"] >= 5 + shutdown.WORKER + shutdown.TRAINING, "with preStop"
        assert pod["enableServiceLinks"] is False


def test_the_training_container_cannot_take_the_proxy_down(manifests: list[Manifest]) -> None:
    for where, pod in pods(manifests):
        halves = {
            c["name"].removeprefix("slipstream-"): c for c in containers(pod) if c["name"].startswith("slipstream-")
        }
        if not halves:
            continue
        proxy, training = halves["proxy"], halves["training"]
        assert list(halves) == ["training", "proxy"], "the proxy ends first, and hands over what it has captured"
        assert training in pod["spec"]["initContainers"], where
        assert training["restartPolicy"] == "Always", "an init container that stays: it ends after the proxy"
        assert not [key for key in training if key.endswith("Probe")], (
            "a container that is not ready takes its pod along"
        )
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert proxy[probe]["httpGet"] == {"path": "/healthz", "port": 8100}, "which a worker answers"
        assert proxy["securityContext"] == training["securityContext"], "one user: they share sockets of mode 0600"
        mounts = [{m["name"] for m in half["volumeMounts"] if not m.get("readOnly")} for half in (proxy, training)]
        assert mounts[0] & mounts[1] == {"slipstream-sockets"}
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        for name in mounts[0]:
            assert volumes[name]["emptyDir"]["medium"] == "Memory", f"{name}: no disk may hold the proxy up"
            assert volumes[name]["emptyDir"]["sizeLimit"]


def test_slipstream_reads_its_own_configuration(
    manifests: list[Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, document in of_kind(manifests, "ConfigMap").items():
        if not name.endswith("-sidecar"):
            continue
        for file, content in document["data"].items():
            (tmp_path / file).write_text(content.replace("/run/secrets/slipstream", str(tmp_path)))
        for secret in ("production_api_key", "facade_api_key"):
            (tmp_path / secret).write_text("k-123\n")
        (tmp_path / "access_keys").write_text(f"[{{name: agents, roles: [proxy], key: {new_key()}}}]")
        settings = load_settings(tmp_path / "sidecar.yaml", {})
        assert (settings.listen.host, settings.listen.port) == ("0.0.0.0", 8100)
        assert str(settings.proxy.sockets) == "/run/slipstream/sockets"
        assert settings.store.url in ("sqlite+aiosqlite:////var/lib/slipstream/slipstream.db", SHARED_STORE)
        services = of_kind(manifests, "Service")
        host, _, port = settings.explorer.base_url.removeprefix("http://").partition(":")
        if of_kind(manifests, "RayJob"):
            assert services[host]["spec"]["ports"][0]["port"] == int(port)
        if "production_api_key" in document["data"]["sidecar.yaml"]:
            assert settings.production.api_key
            assert settings.production.api_key.get_secret_value() == "k-123"
            assert settings.facade.api_key


def _documents(manifests: list[Manifest], role: str, folder: Path) -> tuple[Manifest, dict[str, Any]]:
    """The RayJob, and what Trinity is told: its entrypoint's files, merged as `slipstream trinity` does."""
    [job] = [job for name, job in of_kind(manifests, "RayJob").items() if f"-{role}-" in name]
    [files] = [data["data"] for name, data in of_kind(manifests, "ConfigMap").items() if name.endswith(f"-{role}")]
    for name, text in files.items():
        (folder / name).write_text(text)
    shell, script, *options = shlex.split(job["spec"]["entrypoint"].replace("/etc/slipstream", str(folder)))
    assert (shell, Path(script).name, options[0]) == ("bash", "trinity.sh", "--config")
    config, *rest = options[1:]
    assert set(rest[::2]) == {"--overlay"}
    return job, load_document(Path(config), [Path(overlay) for overlay in rest[1::2]])


def test_trinity_is_told_the_size_and_place_that_its_pods_have(
    manifests: list[Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = of_kind(manifests, "RayJob")
    told: dict[str, dict[str, Any]] = {}
    for role in ("explorer", "trainer") if jobs else ():
        head = next(job for name, job in jobs.items() if f"-{role}-" in name)["spec"]["rayClusterSpec"]
        [ray] = head["headGroupSpec"]["template"]["spec"]["containers"]
        for variable in ray["env"]:
            monkeypatch.setenv(variable["name"], variable.get("value", "postgresql://u:p@database/buffer"))
        (folder := tmp_path / role).mkdir()
        job, document = _documents(manifests, role, folder)
        told[role] = document
        workers = sum(group["replicas"] for group in head.get("workerGroupSpecs", []))
        assert document["cluster"]["node_num"] == 1 + workers
        assert ray["resources"]["limits"]["nvidia.com/gpu"] == document["cluster"]["gpu_per_node"]
        assert document["mode"] == {"explorer": "serve", "trainer": "train"}[role]
        assert document["checkpoint_root_dir"] in [mount["mountPath"] for mount in ray["volumeMounts"]]
        assert document["buffer"]["trainer_input"]["experience_buffer"]["path"].startswith("postgresql://")
        assert job["spec"]["submissionMode"] == "HTTPMode"
    if jobs:
        explorer = told["explorer"]["explorer"]
        assert explorer["listen_address"] == "0.0.0.0"
        assert explorer["proxy_port"] == 8010
        for field in ("project", "group", "name", "checkpoint_root_dir", "model"):
            assert told["explorer"][field] == told["trainer"][field], field
        assert told["explorer"]["synchronizer"]["sync_method"] == "checkpoint"
        for name, data in of_kind(manifests, "ConfigMap").items():
            if name.endswith("-sidecar"):
                sidecar = yaml.safe_load(data["data"]["sidecar.yaml"])
                assert sidecar["runs"]["repeat_time"] == told["explorer"]["algorithm"]["repeat_times"]
                assert sidecar["explorer"]["train_batch_size"] == told["trainer"]["buffer"]["train_batch_size"]
                assert sidecar["explorer"]["algorithm_type"] == told["explorer"]["algorithm"]["algorithm_type"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpu", "several trainer nodes", "one gpu each"])
def test_the_doctor_finds_nothing_wrong(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the three files as they arrive in the pods; with the calculator that every installation has to name."""
    manifests = template(MATRIX[name])
    sidecar = of_kind(manifests, "ConfigMap")["demo-slipstream-sidecar"]["data"]
    [*_, job] = of_kind(manifests, "RayJob").values()
    for variable in job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["env"]:
        monkeypatch.setenv(variable["name"], variable.get("value", "postgresql://u:p@database/buffer"))
    for role in ("explorer", "trainer"):
        (folder := tmp_path / role).mkdir()
        _, document = _documents(manifests, role, folder)
        (tmp_path / f"{role}.yaml").write_text(yaml.safe_dump(document))
    config = yaml.safe_load(sidecar["sidecar.yaml"])
    config["rewards"] = {"calculators": ["agreement"]}
    (tmp_path / "sidecar.yaml").write_text(yaml.safe_dump(config))
    command = [Path(sys.executable).parent / "slipstream", "doctor", "--offline", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {finding["code"] for finding in json.loads(done.stdout)["findings"]}
    assert found <= FOR_THE_NETWORK | {"files.chats_fail_in_reload"}, done.stdout
    told = load_document(tmp_path / "explorer.yaml")["explorer"]["rollout_model"]["engine_num"]
    assert ("files.chats_fail_in_reload" in found) == (told == 1), "what one engine means, and cannot be helped"


def test_fields_of_the_values_reach_trinity_as_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"algorithm": {"optimizer": {"lr": 5.0e-7}}, "buffer": {"train_batch_size": 1000000}}
    for name in ("MODEL_PATH", "CHECKPOINT_ROOT_DIR", "BUFFER_URL"):
        monkeypatch.setenv(name, "/x")
    _, document = _documents(template(merged(GPU, {"trinity": {"fields": fields}})), "trainer", tmp_path)
    assert document["algorithm"]["optimizer"]["lr"] == 5.0e-7
    assert document["buffer"]["train_batch_size"] == 1000000


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "change",
    [
        {"trainer": {"gpus": 8}},
        {"trinity": {"fields": {"algorithm": {"optimizer": {"lr": 1.0e-5}}}}},
        {"trinity": {"image": {"tag": "next"}}},
        {"trinity": {"overlays": ["ppo"]}},
    ],
    ids=["gpus", "fields", "image", "overlay"],
)
def test_a_change_makes_a_new_rayjob_because_kuberay_never_changes_one(change: Manifest) -> None:
    def trainer(values: Manifest) -> str:
        return next(name for name in of_kind(template(values), "RayJob") if "-trainer-" in name)

    assert trainer(merged(GPU, change)) != trainer(GPU)
    assert trainer(merged(GPU, {"sidecar": {"config": {"runs": {"repeat_time": 4}}}})) == trainer(GPU)


@pytest.mark.slow
def test_a_new_configuration_restarts_the_sidecar() -> None:
    def annotations(values: Manifest) -> Manifest:
        [deployment] = of_kind(template(values), "Deployment").values()
        found: Manifest = deployment["spec"]["template"]["metadata"]["annotations"]
        return found

    assert annotations(GPU) != annotations(merged(GPU, {"sidecar": {"config": {"runs": {"repeat_time": 4}}}}))
    assert annotations(GPU) != annotations(merged(GPU, {"sidecar": {"files": {"my_rewards.py": "x = 1\n"}}}))


def test_the_injected_sidecar_starts_before_the_agent_and_ends_after_it() -> None:
    [deployment] = of_kind(template(MATRIX["agent example"]), "Deployment").values()
    pod = deployment["spec"]["template"]["spec"]
    training, proxy = pod["initContainers"]
    assert training["restartPolicy"] == proxy["restartPolicy"] == "Always"
    assert proxy["startupProbe"]
    assert "lifecycle" not in proxy, "its agent has ended by then"
    [agent] = pod["containers"]
    assert {"name": "OPENAI_BASE_URL", "value": "http://127.0.0.1:8100/v1"} in agent["env"]


def test_another_chart_puts_the_sidecar_into_its_own_pods(tmp_path: Path) -> None:
    (chart := tmp_path / "agent").mkdir()
    (chart / "charts").mkdir()
    (chart / "charts" / "slipstream").symlink_to(CHART)
    (chart / "templates").mkdir()
    (chart / "Chart.yaml").write_text("{apiVersion: v2, name: agent, version: 1.0.0}")
    pod = """
      initContainers: {{- include "slipstream.sidecars" .Subcharts.slipstream | nindent 8 }}
      containers: [{name: agent, image: agent}]
      volumes: {{- include "slipstream.volumes" .Subcharts.slipstream | nindent 8 }}
"""
    needs = '{{- include "slipstream.podNeeds" .Subcharts.slipstream | nindent 6 }}'
    labels = '{{- include "slipstream.sidecarLabel" .Subcharts.slipstream | nindent 8 }}'
    checksum = '{config: {{ include "slipstream.checksum" .Subcharts.slipstream }}}'
    (chart / "templates" / "agent.yaml").write_text(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: agent}\nspec:\n  template:\n"
        f"    metadata:\n      annotations: {checksum}\n      labels: {labels}\n    spec: {needs}{pod}"
    )
    values = {"slipstream": merged(GPU, {"sidecar": {"form": "injected"}})}
    manifests = template(values, chart)
    agent = of_kind(manifests, "Deployment")["agent"]["spec"]["template"]
    assert [c["name"] for c in agent["spec"]["initContainers"]] == ["slipstream-training", "slipstream-proxy"]
    assert agent["spec"]["enableServiceLinks"] is False
    configured = {volume["configMap"]["name"] for volume in agent["spec"]["volumes"] if "configMap" in volume}
    assert configured <= of_kind(manifests, "ConfigMap").keys()
    assert agent["metadata"]["labels"] == {"slipstream-sidecar": "demo-slipstream"}


def test_an_uninstall_keeps_what_was_learned() -> None:
    manifests = template(GPU)
    for kind in ("PersistentVolumeClaim", "Secret"):
        for document in of_kind(manifests, kind).values():
            assert document["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_the_notes_tell_agents_their_address(tmp_path: Path) -> None:
    """Without a cluster helm renders no notes; as a template among the others it does."""
    chart = shutil.copytree(CHART, tmp_path / "slipstream")
    notes = (chart / "templates" / "NOTES.txt").read_text(encoding="utf-8")
    (chart / "templates" / "_notes.tpl").write_text(f'{{{{ define "notes" }}}}{notes}{{{{ end }}}}')
    (chart / "templates" / "notes.yaml").write_text(
        '{kind: Notes, metadata: {name: notes}, text: {{ include "notes" . | toJson }}}'
    )
    for name, told in (("sidecar alone", "http://demo-slipstream.agents:8100/v1"), ("injected", "initContainers")):
        text = of_kind(template(MATRIX[name], chart), "Notes")["notes"]["text"]
        assert told in text
        assert "nothing will be trained" in text
    scored = of_kind(template(MATRIX["secrets and files"], chart), "Notes")["notes"]["text"]
    assert "nothing will be trained" not in scored


def test_the_schema_knows_the_sections_of_the_sidecar() -> None:
    schema = yaml.safe_load((CHART / "values.schema.json").read_text(encoding="utf-8"))
    sections = schema["properties"]["sidecar"]["properties"]["config"]["properties"]
    assert set(sections) == set(Settings.model_fields) - {"listen"}, "the chart itself says where it listens"
