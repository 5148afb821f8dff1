"""docs/kubernetes.md: its examples of values are rendered, its manifests are valid."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from charts import CHART, MATRIX, ROOT, merged, of_kind, template
from commands import slipstream
from sqlalchemy import make_url

from slipstream.settings.source import load_settings

PAGE = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
EXAMPLES = {text.splitlines()[0].lstrip("# "): text for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)}

# Files, and keys of theirs, whose first word is a section of the values too.
OF_OTHER_FILES = {"sidecar.yaml", "explorer.yaml", "trainer.yaml"} | {
    "explorer.train_batch_size",
    "explorer.algorithm_type",
    "explorer.history_url",
    "trainer.total_steps",
    "trainer.save_interval",
}


@pytest.mark.parametrize("name", [name for name in EXAMPLES if "values" in name])
def test_the_values_of_the_page_are_rendered(name: str) -> None:
    manifests = template(yaml.safe_load(EXAMPLES[name]))
    assert any(container["kind"] == "Deployment" for container in manifests)


def test_the_first_values_are_a_whole_loop() -> None:
    kinds = {document["kind"] for document in template(yaml.safe_load(EXAMPLES["my-values.yaml"]))}
    assert {"Deployment", "RayJob", "StatefulSet", "NetworkPolicy"} <= kinds


def test_the_pod_of_the_page_reads_the_secrets_that_it_mounts(tmp_path: Path) -> None:
    [snippet] = re.findall(r"```\n(metadata:\n.*?)```", PAGE, re.DOTALL)
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "slipstream").symlink_to(CHART)
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: agent, version: 1.0.0}")
    text = f"apiVersion: v1\nkind: Pod\n{snippet}  containers: [{{name: agent, image: agent}}]\n"
    (tmp_path / "templates" / "agent.yaml").write_text(text.replace("metadata:\n", "metadata:\n  name: agent\n"))
    pod = of_kind(template({"slipstream": MATRIX["injected"]}, tmp_path), "Pod")["agent"]
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    [secrets] = [volume["projected"] for volume in pod["spec"]["volumes"] if "projected" in volume]
    assert secrets["defaultMode"] == 0o440, "for root and for the group"
    users = {container["securityContext"]["runAsUser"] for container in pod["spec"]["initContainers"]}
    assert users == {pod["spec"]["securityContext"]["fsGroup"]}


def test_the_history_of_the_page_is_one_that_the_sidecar_reads_and_reaches(tmp_path: Path) -> None:
    both = merged(*(yaml.safe_load(EXAMPLES[name]) for name in ("my-values.yaml", "history.yaml, beside those above")))
    both["sidecar"]["config"].pop("rewards")
    manifests = list(yaml.safe_load_all(yaml.safe_dump_all(template(both)).replace("demo-slipstream", "slipstream")))
    text = of_kind(manifests, "ConfigMap")["slipstream-sidecar"]["data"]["sidecar.yaml"]
    (tmp_path / "sidecar.yaml").write_text(text.replace("/run/secrets/slipstream", str(tmp_path)))
    for secret, value in {"history_password": "pw", "production_api_key": "sk", "access_keys": "[]"}.items():
        (tmp_path / secret).write_text(value)
    url = make_url(load_settings(tmp_path / "sidecar.yaml", {}).explorer.history_url or "")
    [database] = of_kind(manifests, "StatefulSet").values()
    assert (url.host, url.password, url.port) == (database["spec"]["serviceName"], "pw", 5432)
    named = both["sidecar"]["secrets"]["history_password"]
    assert named["key"] in of_kind(manifests, "Secret")[named["existingSecret"]]["stringData"]
    [rule] = of_kind(manifests, "NetworkPolicy")["slipstream-postgresql"]["spec"]["ingress"]
    assert {"slipstream-sidecar": "slipstream"} in [peer["podSelector"]["matchLabels"] for peer in rule["from"]]


def job_of(example: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pod and the container of a Job of the page, which is valid, and as restricted as the page says."""
    documents = list(yaml.safe_load_all(EXAMPLES[example]))
    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    [pod] = [document["spec"]["template"]["spec"] for document in documents if document["kind"] == "Job"]
    [container] = pod["containers"]
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert restricted.items() <= container["securityContext"].items(), "the page says that the namespace may enforce it"
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    return pod, container


def of_the_release() -> list[dict[str, Any]]:
    """The manifests that Helm makes of the page's values, under the page's name of the release."""
    text = yaml.safe_dump_all(template(yaml.safe_load(EXAMPLES["my-values.yaml"])))
    return list(yaml.safe_load_all(text.replace("demo-slipstream", "slipstream")))


def test_the_model_is_fetched_to_where_the_values_look() -> None:
    _, fetch = job_of("fetch-model.yaml")
    values = yaml.safe_load(EXAMPLES["my-values.yaml"])
    assert fetch["command"][-1] == values["trinity"]["modelPath"]
    [claim, _] = yaml.safe_load_all(EXAMPLES["fetch-model.yaml"])
    assert claim["metadata"]["name"] == values["trinity"]["models"]["existingClaim"]


def test_the_backup_reads_the_configuration_as_the_sidecar_does() -> None:
    pod, backup = job_of("backup.yaml")
    sidecar = of_kind(of_the_release(), "Deployment")["slipstream"]["spec"]["template"]["spec"]
    [training] = sidecar["initContainers"]
    assert backup["workingDir"] == training["workingDir"]
    assert pod["enableServiceLinks"] is sidecar["enableServiceLinks"] is False
    assert backup["command"][-2:] == training["command"][-2:]
    read = ("slipstream-config", "slipstream-secrets")
    for theirs, ours in ((sidecar["volumes"], pod["volumes"]), (training["volumeMounts"], backup["volumeMounts"])):
        assert [each for each in ours if each["name"] in read] == [each for each in theirs if each["name"] in read]
    folders = {mount["mountPath"]: mount.get("readOnly", False) for mount in backup["volumeMounts"]}
    assert folders[str(Path(backup["command"][2]).parent)] is False, "where it writes"


async def test_the_rollback_of_the_page_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod, rollback = job_of("rollback.yaml")
    paths = {"/etc/slipstream": tmp_path, "/checkpoints": tmp_path / "checkpoints"}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    rendered = of_the_release()
    for mount in rollback["volumeMounts"]:
        assert mount["mountPath"] in paths
        if files := volumes[mount["name"]].get("configMap"):
            for name, text in of_kind(rendered, "ConfigMap")[files["name"]]["data"].items():
                (tmp_path / name).write_text(text)
        else:
            assert volumes[mount["name"]]["persistentVolumeClaim"]["claimName"] in of_kind(
                rendered, "PersistentVolumeClaim"
            )
    job = tmp_path / "checkpoints" / "slipstream" / "policy"
    for step in (12, 13):
        (job / f"global_step_{step}").mkdir(parents=True)
        (job / f"global_step_{step}" / ".full_checkpoint").touch()
    (job / "latest_state_dict_iteration.txt").write_text("13")
    for variable in rollback["env"]:
        monkeypatch.setenv(variable["name"], str(paths.get(variable["value"], variable["value"])))
    words = [word.replace("/etc/slipstream", str(tmp_path)) for word in rollback["command"][1:]]
    code, said, err = await slipstream(*words)
    assert (code, err) == (0, "")
    assert said.startswith("version 12 is the newest now")
    assert (job / "latest_state_dict_iteration.txt").read_text() == "12"


def test_every_value_and_claim_that_the_page_names_is_there() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    for path in set(re.findall(rf"`((?:{'|'.join(values)})(?:\.\w+)+)`", PAGE)) - OF_OTHER_FILES:
        node = values
        for key in path.split("."):
            assert key in node, path
            node = node[key]
    rendered = template(yaml.safe_load(EXAMPLES["my-values.yaml"]))
    claims = of_kind(rendered, "PersistentVolumeClaim")
    assert {f"demo-{name}" for name in re.findall(r"the claim `(.+?)`", PAGE)} <= claims.keys()
