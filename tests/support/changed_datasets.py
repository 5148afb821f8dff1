"""Changes of a directory that has the data set `support` with three rows, for processes that are killed amid them."""

from __future__ import annotations

from pathlib import Path

from dataset_rows import dataset, rows

from slipstream.datasets import folder
from slipstream.datasets.row import Kind

GIVEN = [row for row in rows(Kind.SFT) if len(str(row.answer)) < 10_000]


def make(directory: Path) -> None:
    with folder.new_folder(directory, dataset()) as made:
        for row in GIVEN[:3]:
            made.add("train", row)
        made.publish({})


def replace(directory: Path) -> None:
    with folder.new_folder(directory, dataset(), replace=True) as made:
        made.add("train", GIVEN[3])
        made.publish({})


def remove(directory: Path) -> None:
    gone = GIVEN[0].provenance.task
    assert folder.remove_rows(directory / "support", lambda origin: origin["task"] != gone) == 1


def delete(directory: Path) -> None:
    folder.delete(directory / "support")
