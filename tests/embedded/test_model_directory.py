"""A model path that cannot be served or trained ends its command at once, with what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.embedded.model_directory import check_model_directory
from slipstream.errors import ConfigError

ROOT = Path(__file__).parents[2]


def made(folder: Path, *names: str) -> str:
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    return str(folder)


def test_a_model_directory_is_taken(tmp_path: Path) -> None:
    name = made(tmp_path / "model", "config.json", "model-00001-of-00002.safetensors", "tokenizer.json")
    assert check_model_directory(name) == tmp_path / "model"


def test_what_is_none_is_named(tmp_path: Path) -> None:
    whole = r"model\.model_path: expected a Hugging Face model directory, found "
    with pytest.raises(ConfigError, match=whole + "nothing at .*slipstream model fetch smollm2"):
        check_model_directory(str(tmp_path / "absent"))
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=whole + "a file at"):
        check_model_directory(str(tmp_path / "file"))
    with pytest.raises(ConfigError, match=whole + ".* without config.json, weights, a tokenizer"):
        check_model_directory(made(tmp_path / "empty"))
    with pytest.raises(ConfigError, match=whole + ".* without weights"):
        check_model_directory(made(tmp_path / "half", "config.json", "tokenizer.json"))
    with pytest.raises(ConfigError, match="hf download HuggingFaceTB/SmolLM2-135M --local-dir SmolLM2-135M"):
        check_model_directory("HuggingFaceTB/SmolLM2-135M")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["up", "trainer"])
def test_a_command_without_its_model_ends_at_once(command: str, tmp_path: Path) -> None:
    (tmp_path / "sidecar.yaml").write_text("explorer: {base_url: http://127.0.0.1:9}\n")
    for name in ("explorer", "trainer"):
        (tmp_path / f"{name}.yaml").write_text((ROOT / f"{name}.yaml").read_text())
    run = subprocess.run(
        [sys.executable, "-m", "slipstream", command, "--overlay", str(ROOT / "overlays" / "small-cpu.yaml")],
        cwd=tmp_path,
        env={"PATH": "", "MODEL_PATH": "/no/such/model", "CHECKPOINT_ROOT_DIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 2
    assert "model.model_path: expected a Hugging Face model directory, found nothing at '/no/such/model'" in run.stderr
    assert "Traceback" not in run.stderr
