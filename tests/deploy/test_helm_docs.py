"""docs/kubernetes.md: its examples of values are rendered, its manifests are valid."""

from __future__ import annotations

import re

import kubernetes_validate
import pytest
import yaml
from charts import CHART, ROOT, of_kind, template

PAGE = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
EXAMPLES = {text.splitlines()[0].lstrip("# "): text for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)}

# Files, and keys of theirs, whose first word is a section of the values too.
OF_OTHER_FILES = {"sidecar.yaml", "explorer.yaml", "trainer.yaml"} | {
    "explorer.train_batch_size",
    "explorer.algorithm_type",
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


def test_the_model_is_fetched_to_where_the_values_look() -> None:
    documents = {document["kind"]: document for document in yaml.safe_load_all(EXAMPLES["fetch-model.yaml"])}
    for document in documents.values():
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    values = yaml.safe_load(EXAMPLES["my-values.yaml"])
    pod = documents["Job"]["spec"]["template"]["spec"]
    [fetch] = pod["containers"]
    assert fetch["command"][-1] == values["trinity"]["modelPath"]
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert restricted.items() <= fetch["securityContext"].items(), "the page says that the namespace may enforce it"
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert documents["PersistentVolumeClaim"]["metadata"]["name"] == values["trinity"]["models"]["existingClaim"]


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
