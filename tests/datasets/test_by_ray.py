"""A data set read by processes of Ray Data is the one that is read by one process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from dataset_store import stored

_PYTHON = Path(__file__).parents[2] / ".ray-venv" / "bin" / "python"

_EXPORT = "ip link set lo up && exec {python} -m slipstream dataset export --replace --data data.yaml {more}"


def _exported(folder: Path, more: str) -> dict[str, object]:
    """Export in a network of its own: Ray listens on all addresses of a machine."""
    command = _EXPORT.format(python=_PYTHON, more=more)
    done = subprocess.run(
        ["unshare", "-n", "bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    manifest: dict[str, object] = json.loads((folder / "sets" / "data" / "manifest.json").read_text())
    return manifest


@pytest.mark.slow
async def test_two_workers_make_the_data_set_of_one_process(tmp_path: Path) -> None:
    if not _PYTHON.exists():
        pytest.skip("`make test-ray` installs Ray, and runs this")
    async with stored(tmp_path) as made:
        for number in range(40):
            await made.task(f"task {number}", f"answer {number % 30}", [("good", 1.0), (f"bad {number}", 0.0)])
        url = made.url
    (tmp_path / "sidecar.yaml").write_text(json.dumps({"store": {"url": url}, "datasets": {"directory": "sets"}}))
    for dataset in (
        {"name": "data", "sources": [{"production": {}}, {"policy": {"best_of_group": 1}}], "held_out": {"share": 0.2}},
        {"name": "data", "kind": "preference", "pairs": {"from": ["runs"]}, "files": "parquet"},
    ):
        (tmp_path / "data.yaml").write_text(json.dumps({"dataset": dataset}))
        alone, together = _exported(tmp_path, ""), _exported(tmp_path, "--ray 2")
        assert alone["digest"] == together["digest"]
        assert alone["counts"] == together["counts"]
        assert alone["dropped"] == together["dropped"]
