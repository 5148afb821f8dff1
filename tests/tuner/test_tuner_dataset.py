"""Datasets: what `datasets.load_dataset` takes, offline, and what is said where there is nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slipstream_client import DatasetConfig

TASKS = [{"question": "2 + 2?", "answer": "4"}, {"question": "4 + 4?", "answer": "8"}]


@pytest.fixture
def directory(folder: Path) -> str:
    (folder / "my_dataset").mkdir()
    for split, tasks in {"train": TASKS, "test": TASKS[:1]}.items():
        (folder / "my_dataset" / f"{split}.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return "my_dataset"


def test_preview_prints_and_returns(directory: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert DatasetConfig(path=directory).preview(n=1) == TASKS[:1]
    assert json.loads(capsys.readouterr().out) == TASKS[:1]
    assert DatasetConfig(path=directory, split="train[1:]").preview() == TASKS[1:]


def test_a_directory_a_file_and_this_directory_are_read(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(DatasetConfig(path=directory).load()) == TASKS
    assert list(DatasetConfig(path=directory, split="test").load()) == TASKS[:1]
    assert list(DatasetConfig(path=f"{directory}/test.jsonl").load()) == TASKS[:1]
    monkeypatch.chdir(directory)
    assert list(DatasetConfig(path=".").load()) == TASKS


@pytest.mark.parametrize("method", ["load", "preview"])
def test_what_is_not_there_is_named(directory: str, method: str, folder: Path) -> None:
    def said(**fields: str | None) -> str:
        with pytest.raises(ValueError, match="dataset") as caught:
            getattr(DatasetConfig(**{"path": directory, **fields}), method)()
        return str(caught.value)

    assert "split 'dev'" in said(split="dev")
    assert "['train', 'test']" in said(split="dev")
    assert "split: expected one of ['train', 'test'], found None" in said(split=None)
    assert "name 'algebra'" in said(name="algebra")
    assert "path: no directory, no file" in said(path="./elsewhere")
    (folder / "empty").mkdir()
    (folder / "empty" / "notes.md").touch()
    assert "no data files in the directory 'empty'; it holds ['notes.md']" in said(path="empty")
    (folder / "tasks.txt").touch()
    assert "path: expected a file of .jsonl" in said(path="tasks.txt")
    (folder / "broken.jsonl").write_text('{"question": 1}\n{"question":')
    assert "path: 'broken.jsonl' cannot be read: JSON parse error" in said(path="broken.jsonl")


def test_an_empty_split_is_refused(directory: str) -> None:
    with pytest.raises(ValueError, match="split"):
        DatasetConfig(path=directory, split="train[:0]").load()


@pytest.mark.parametrize("method", ["load", "preview"])
def test_a_file_without_a_byte_is_refused(folder: Path, method: str) -> None:
    (folder / "train.jsonl").touch()
    with pytest.raises(ValueError, match=r"dataset split: 'train' of '\.' has no tasks"):
        getattr(DatasetConfig(path="."), method)()


def test_a_directory_that_was_here_once_is_not_taken_for_one_of_the_hub(
    directory: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in another working directory, without network: datasets knows it by its name, from its cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    assert list(DatasetConfig(path=directory).load()) == TASKS
    (folder / directory).rename(folder / "elsewhere")
    with pytest.raises(ValueError, match="dataset path: no directory, no file, and no dataset that can be had"):
        DatasetConfig(path=directory).load()
