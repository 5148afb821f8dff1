"""`explorer.yaml`, `trainer.yaml` and every overlay, judged by Trinity's own loader and validators."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from real_trinity import Installation

from slipstream.trinity import side_job
from slipstream.trinity.document import load_document
from slipstream.trinity.side_job import Algorithm, SideJob

ROOT = Path(__file__).parents[2]
OF_DATA_SETS = {"dpo", "kto", "sdpo", "sft"}
"""Overlays of `slipstream train`: a job of Trinity's with these algorithms names its files too."""
OVERLAYS = sorted(path for path in (ROOT / "overlays").glob("*.yaml") if path.stem not in OF_DATA_SETS)


def _environment(folder: Path) -> dict[str, str]:
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"model_type": "llama", "max_position_embeddings": 32768}))
    return {
        "MODEL_PATH": str(model),
        "CHECKPOINT_ROOT_DIR": str(folder / "checkpoints"),
        "BUFFER_URL": "postgresql://slipstream:secret@127.0.0.1:5432/slipstream",
    }


def _errors(installation: Installation, files: list[Path], environment: dict[str, str]) -> dict[str, str | None]:
    errors: dict[str, str | None] = installation.run("check_files", *files, environment=environment)[0]
    return errors


def test_trinity_accepts_both_files_as_they_are_and_with_each_overlay(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = _environment(tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert OVERLAYS
    files = [ROOT / "explorer.yaml", ROOT / "trainer.yaml"]  # Trinity resolves their variables itself
    for name in ("explorer.yaml", "trainer.yaml"):
        for overlay in OVERLAYS:
            merged = tmp_path / f"{overlay.stem}-{name}"
            merged.write_text(yaml.safe_dump(load_document(ROOT / name, [overlay])))
            files.append(merged)
    assert _errors(installation, files, environment) == dict.fromkeys(map(str, files))


def test_the_judgement_is_trinitys_own(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Trinity refuses is refused here: else the test above would show nothing."""
    environment = _environment(tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    tree = load_document(ROOT / "explorer.yaml")
    wrong = {
        "algorithm.yaml": tree | {"algorithm": {"algorithm_type": "sft"}},
        "schema.yaml": tree | {"no_such_section": {}},
        "gpus.yaml": tree | {"cluster": {"node_num": 1, "gpu_per_node": 2}},
    }
    for name, content in wrong.items():
        (tmp_path / name).write_text(yaml.safe_dump(content))
    errors = _errors(installation, [tmp_path / name for name in wrong], environment)
    assert None not in errors.values(), errors


@pytest.mark.parametrize("algorithm", ["sft", "dpo"])
def test_trinity_accepts_the_side_job_of_a_data_set(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: Algorithm
) -> None:
    environment = _environment(tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    policy = load_document(ROOT / "trainer.yaml", [ROOT / "overlays" / f"{algorithm}.yaml"])
    side_job.check(policy, algorithm)
    job = SideJob(tmp_path / "run", tmp_path / "model", tmp_path / "rows", 3, "r1")
    right, named, other = (tmp_path / f"{name}.yaml" for name in ("right", "named", "other"))
    document = side_job.document(policy, algorithm, job)
    right.write_text(yaml.safe_dump(document))
    named.write_text(yaml.safe_dump(document | {"no_such_section": {}}))
    other.write_text(yaml.safe_dump(document | {"mode": "both"}))
    errors = _errors(installation, [right, named, other], environment)
    assert errors[str(right)] is None
    assert errors[str(named)]
    assert errors[str(other)]
