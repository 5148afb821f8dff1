"""What the chart carries along: copies that are equal to the repository's files, and the script that runs Trinity."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from charts import CHART, MATRIX, ROOT, of_kind, template

from slipstream.trinity.launch import FAILED, UNFINISHED

FILES = CHART / "files"
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"


def test_the_copies_are_equal_to_the_repository_s_files() -> None:
    """A chart reads nothing outside its folder, and a package follows no link. After a change: cp ... again."""
    originals = {name: ROOT / name for name in ("explorer.yaml", "trainer.yaml")}
    originals |= {f"overlays/{path.name}": path for path in (ROOT / "overlays").glob("*.yaml")}
    originals["rules.yml"] = RULES
    copies = {str(path.relative_to(FILES)): path for path in FILES.rglob("*.y*ml")}
    assert copies.keys() == originals.keys()
    for name, original in originals.items():
        text = original.read_text(encoding="utf-8")
        assert copies[name].read_text(encoding="utf-8") == text, f"cp {original} {copies[name]}"


def test_prometheus_gets_the_same_rules_as_without_the_operator() -> None:
    [rule] = of_kind(template(MATRIX["monitoring"]), "PrometheusRule").values()
    assert rule["spec"] == yaml.safe_load(RULES.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["monitoring", "monitoring of an injected one"])
def test_the_sidecar_is_scraped_under_the_name_that_the_rules_know(name: str) -> None:
    known = re.findall(r'job="(.+?)"', RULES.read_text(encoding="utf-8"))
    [monitor] = [
        document for document in template(MATRIX[name]) if document["kind"] in ("ServiceMonitor", "PodMonitor")
    ]
    [endpoint] = monitor["spec"].get("endpoints") or monitor["spec"]["podMetricsEndpoints"]
    [job] = [rule["replacement"] for rule in endpoint["relabelings"] if rule["targetLabel"] == "job"]
    assert set(known) == {job}
    assert endpoint["path"] == "/metrics"


@pytest.fixture
def script(tmp_path: Path) -> list[str]:
    """The entrypoint with a `slipstream` that answers with the exit codes of $CODES, one a start."""
    stub = tmp_path / "slipstream"
    stub.write_text(
        '#!/bin/bash\necho "$@" >> "$LOG"\nread -r code rest < "$CODES"; echo "$rest" > "$CODES"; exit "$code"\n'
    )
    stub.chmod(0o755)
    return ["bash", str(FILES / "trinity.sh"), "--config", "trainer.yaml"]


@pytest.mark.parametrize(
    ("codes", "starts", "ends"),
    [(f"{UNFINISHED} {UNFINISHED} 0", 3, 0), (f"{UNFINISHED} {FAILED}", 2, FAILED), ("2", 1, 2)],
    ids=["quiet-nights", "failed", "refused"],
)
def test_trinity_is_started_again_while_work_is_left(
    script: list[str], tmp_path: Path, codes: str, starts: int, ends: int
) -> None:
    (tmp_path / "codes").write_text(codes)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "LOG": str(tmp_path / "log"),
        "CODES": str(tmp_path / "codes"),
        "POD_LOG": str(tmp_path / "pod"),
        "RESTART_PAUSE": "0",
    }
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == ends
    assert (tmp_path / "log").read_text().splitlines() == ["trinity --config trainer.yaml"] * starts
    assert done.stdout.count("is started again") == starts - 1
    assert (tmp_path / "pod").read_text() == done.stdout, "in the log of the job and in that of the pod"
