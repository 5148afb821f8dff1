"""What the chart renders is what Kubernetes, the Prometheus operator and KubeRay accept, for a matrix of values."""

from __future__ import annotations

import functools
import json
from typing import Any

import kubernetes_validate
import pytest
from charts import CHART, MATRIX, Manifest, helm, pods, template
from kuberay import RayJob

# The oldest that the chart says it supports, and the newest whose schemas the package has.
KUBERNETES = ("1.29", kubernetes_validate.latest_version())


@pytest.fixture(scope="module", params=MATRIX, ids=lambda name: name.replace(" ", "-"))
def manifests(request: pytest.FixtureRequest) -> list[Manifest]:
    return template(MATRIX[request.param])


def check(document: Manifest) -> None:
    """Raises where the document has a wrong or unknown field."""
    group = document["apiVersion"].partition("/")[0]
    if group == "ray.io":
        RayJob.model_validate(document)
        for _, pod in pods([document]):
            check({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "ray"}, "template": pod})
    elif group == "monitoring.coreos.com":
        # Not at the top: the import takes seconds, and each test process imports each test file.
        import cloudcoil.models.prometheus_operator.v1 as prometheus_operator

        model: Any = getattr(prometheus_operator, document["kind"])
        # Made from the operator's own definitions; a field that they do not know is lost on the way through.
        known = model.model_validate(document).model_dump(mode="json", by_alias=True, exclude_unset=True)
        assert known == document
    else:
        for version in KUBERNETES:
            kubernetes_validate.validate(document, version, strict=True)


@functools.cache
def check_text(text: str) -> None:
    """Check a document once: two thirds of what the charts of the matrix render is equal to that of another."""
    check(json.loads(text))


@pytest.mark.sampled
def test_every_manifest_is_valid(manifests: list[Manifest]) -> None:
    assert manifests
    for document in manifests:
        check_text(json.dumps(document))


def test_names_are_unique(manifests: list[Manifest]) -> None:
    names = [(document["kind"], document["metadata"]["name"]) for document in manifests]
    assert len(names) == len(set(names))


def test_helm_lints_it_strictly() -> None:
    helm("lint", str(CHART), "--strict", "--quiet", values=MATRIX["gpu"])


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Deployment", ("spec", "template", "spec", "containers", 0, "readinessProb")),
        ("RayJob", ("spec", "backofLimit")),
        ("RayJob", ("spec", "rayClusterSpec", "headGroupSpec", "template", "spec", "toleration")),
        ("ServiceMonitor", ("spec", "endpoint")),
        ("PrometheusRule", ("spec", "groups", 0, "rule")),
    ],
)
def test_a_wrong_field_would_be_found(kind: str, path: tuple[str | int, ...]) -> None:
    document = next(document for document in template(MATRIX["monitoring"]) if document["kind"] == kind)
    check(document)
    *parents, last = path
    target: Any = document
    for key in parents:
        target = target[key]
    target[last] = {}
    with pytest.raises((kubernetes_validate.ValidationError, ValueError, AssertionError)):
        check(document)
