"""The folder of a data set: made whole or not at all, read, changed and deleted."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from dataset_rows import FORMS, dataset, rows

from slipstream.datasets.config import Dataset
from slipstream.datasets.folder import (
    DatasetError,
    DatasetExists,
    DatasetMissing,
    delete,
    list_folders,
    manifest,
    new_folder,
    read_rows,
    remove_rows,
)
from slipstream.datasets.formats import Format
from slipstream.datasets.manifest import Manifest
from slipstream.datasets.row import Kind, Row


def make(
    directory: Path, how: Dataset, train: Sequence[Row], held_out: Sequence[Row] = (), replace: bool = False
) -> Manifest:
    with new_folder(directory, how, replace=replace) as folder:
        for split, taken in (("train", train), ("held_out", held_out)):
            for row in taken:
                assert folder.add(split, row)
        return folder.publish({"slipstream": "0.1.0", "redaction": ["emails"]})


@pytest.mark.parametrize("files", ["jsonl", "parquet"])
@pytest.mark.parametrize(("form", "kind"), FORMS)
def test_rows_come_back_from_each_format_and_kind_of_file(tmp_path: Path, form: Format, kind: Kind, files: str) -> None:
    given = rows(kind)
    made = make(tmp_path, dataset(kind, format=form, files=files), given[1:], given[:1])
    assert manifest(tmp_path / "support") == made
    assert made.counts.rows == {"train": 4, "held_out": 1}
    back = [*read_rows(tmp_path / "support", "held_out"), *read_rows(tmp_path / "support", "train")]
    assert [row.provenance.task for row in back] == [row.provenance.task for row in given]
    if form in ("trl", "openai"):
        assert [row.digest for row in back] == [row.digest for row in given]
    lines = (tmp_path / "support" / "train.provenance.jsonl").read_text().splitlines()
    assert [json.loads(line)["digest"] for line in lines] == [row.digest for row in given[1:]]


def test_the_manifest_counts_what_is_there_and_what_was_dropped(tmp_path: Path) -> None:
    given = rows(Kind.PREFERENCE)
    reasoned = Row(
        Kind.PREFERENCE,
        given[0].prompt,
        {**given[0].answer, "reasoning": "Hm."},
        given[0].provenance,
        rejected=given[0].rejected,
    )
    with new_folder(tmp_path, dataset(Kind.PREFERENCE, format="openai")) as folder:
        for row in given:
            folder.add("train", row)
        assert not folder.add("train", reasoned)
        folder.drop("equal", 3)
        made = folder.publish({"slipstream": "0.1.0"})
    assert made.dropped == {"equal": 3, "format_cannot_say:reasoning": 1}
    assert made.counts.sources == {"policy": 5}
    assert made.counts.models == {"version:3": 5}
    rewards = made.counts.rewards
    assert rewards is not None
    assert (rewards.count, rewards.least, rewards.most, rewards.mean) == (5, 0.0, 0.4, pytest.approx(0.2))
    assert made.about == {"slipstream": "0.1.0"}
    assert set(made.sha256) == {
        f"{split}{ending}" for split in ("train", "held_out") for ending in (".jsonl", ".provenance.jsonl")
    }


def test_a_name_is_taken_once_unless_it_is_replaced(tmp_path: Path) -> None:
    given = rows(Kind.SFT)
    make(tmp_path, dataset(), given[:1])
    with pytest.raises(DatasetExists, match="support"), new_folder(tmp_path, dataset()):
        pass
    with new_folder(tmp_path, dataset(), replace=True) as folder:
        with (
            pytest.raises(DatasetExists, match="support: another process"),
            new_folder(tmp_path, dataset(), replace=True),
        ):
            pass
        with pytest.raises(DatasetExists, match="support: another process"):
            delete(tmp_path / "support")
        folder.add("train", given[1])
        assert [row.digest for row in read_rows(tmp_path / "support", "train")] == [given[0].digest]
        folder.publish({})
    assert [row.digest for row in read_rows(tmp_path / "support", "train")] == [given[1].digest]
    assert left(tmp_path) == ["support"]


def left(directory: Path) -> list[str]:
    return sorted({*os.listdir(directory)} - {".slipstream.lock"})


def test_what_was_not_published_leaves_nothing(tmp_path: Path) -> None:
    with contextlib.suppress(ZeroDivisionError), new_folder(tmp_path, dataset(files="parquet")) as folder:
        folder.add("train", rows(Kind.SFT)[0])
        raise ZeroDivisionError
    with new_folder(tmp_path, dataset()) as folder:
        folder.add("train", rows(Kind.SFT)[0])
    assert left(tmp_path) == []
    assert list_folders(tmp_path) == list_folders(tmp_path / "nowhere") == []


@pytest.mark.parametrize("files", ["jsonl", "parquet"])
def test_rows_are_removed_and_the_rest_stays(tmp_path: Path, files: str) -> None:
    given = rows(Kind.SFT)
    made = make(tmp_path, dataset(files=files), given[:3], given[3:])
    folder = tmp_path / "support"
    reading = read_rows(folder, "train")
    first = next(reading)
    gone = {given[0].provenance.task, given[3].provenance.task}
    assert remove_rows(folder, lambda origin: origin["task"] not in gone) == 2
    assert [first.digest, *(row.digest for row in reading)] == [row.digest for row in given[:3]]  # as it was
    assert [row.digest for row in read_rows(folder, "train")] == [row.digest for row in given[1:3]]
    assert [row.digest for row in read_rows(folder, "held_out")] == [given[4].digest]
    now = manifest(folder)
    assert now.counts.rows == {"train": 2, "held_out": 1}
    assert (now.made_at, now.about, now.dataset) == (made.made_at, made.about, made.dataset)
    assert now.digest != made.digest
    (erasure,) = now.erased
    assert erasure.rows == {"train": 1, "held_out": 1}
    assert not any(task in erasure.model_dump_json() for task in gone)
    assert "## Erased" in (folder / "README.md").read_text()
    assert remove_rows(folder, lambda origin: origin["task"] not in gone) == 0
    assert manifest(folder) == now
    assert left(tmp_path) == ["support"]


def test_what_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetMissing, match="support"):
        manifest(tmp_path / "support")
    given = rows(Kind.SFT)
    make(tmp_path, dataset(), given[:3])
    folder = tmp_path / "support"
    lines = (folder / "train.jsonl").read_text().split("\n")
    (folder / "train.jsonl").write_text("\n".join([lines[0], '{"prompt": 3}', lines[2], ""]))
    with pytest.raises(DatasetError, match=r"train\.jsonl: line 2: expected a line as it was written"):
        list(read_rows(folder, "train"))
    (folder / "train.jsonl").write_text(f"{lines[0]}\n{lines[1][:40]}\n")
    with pytest.raises(DatasetError, match=r"train\.jsonl: line 2: expected a JSON object"):
        list(read_rows(folder, "train"))
    (folder / "train.jsonl").write_text(lines[0] + "\n")
    with pytest.raises(DatasetError, match=r"train\.jsonl: line 2"):
        list(read_rows(folder, "train"))
    (folder / "manifest.json").write_text('{"version": 1, "name": 3}')
    with pytest.raises(DatasetError, match=r"manifest\.json: name: "):
        manifest(folder)
    delete(folder)
    assert left(tmp_path) == []


@pytest.mark.parametrize("moment", ["partial", "between", "replaced", "deleted"])
def test_what_a_killed_process_left_is_put_right(tmp_path: Path, moment: str) -> None:
    given = rows(Kind.SFT)
    make(tmp_path / "old", dataset(), given[:1])
    make(tmp_path / "new", dataset(), given[1:2])
    old, new, here = tmp_path / "old" / "support", tmp_path / "new" / "support", tmp_path / "here"
    here.mkdir()
    if moment == "partial":  # killed while it wrote
        (new / "manifest.json").unlink()
        new.rename(here / ".support.partial")
        old.rename(here / "support")
    elif moment == "between":
        new.rename(here / ".support.partial")
        old.rename(here / ".support.replaced")
    else:
        new.rename(here / "support")
        old.rename(here / f".support.{moment}")
    kept = given[0] if moment == "partial" else given[1]
    assert [row.digest for row in read_rows(here / "support", "train")] == [kept.digest]
    assert list_folders(here) == [here / "support"]
    assert left(here) == ["support"]  # no conversation stays where nobody looks for it
