"""A process that is killed while it makes, changes or deletes a data set leaves the old one or the new one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import changed_datasets
import pytest
from changed_datasets import GIVEN
from killed_anywhere import copies_killed_anywhere

from slipstream.datasets.folder import list_folders, manifest, new_folder, read_rows, remove_rows
from slipstream.datasets.row import Row

pytestmark = pytest.mark.slow


def digests(rows: Sequence[Row]) -> list[str]:
    return [row.digest for row in rows]


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (changed_datasets.make, None, GIVEN[:3]),
        (changed_datasets.replace, GIVEN[:3], GIVEN[3:4]),
        (changed_datasets.remove, GIVEN[:3], GIVEN[1:3]),
        (changed_datasets.delete, GIVEN[:3], None),
    ],
)
def test_a_kill_leaves_the_old_rows_or_the_new_ones(
    tmp_path: Path, change: Callable[[Path], None], before: Sequence[Row] | None, after: Sequence[Row] | None
) -> None:
    directory = tmp_path / "datasets"
    directory.mkdir()
    if before is not None:
        changed_datasets.make(directory)
    copies = copies_killed_anywhere("changed_datasets", change.__name__, directory)
    assert len(copies) > 5
    found = [_after_a_kill(copy) for copy in copies]
    assert found[0] == (None if before is None else digests(before))
    assert found[-1] == (None if after is None else digests(after))
    assert all(rows in (found[0], found[-1]) for rows in found)


def _after_a_kill(directory: Path) -> list[str] | None:
    """Rows of the data set by now, none of which is left anywhere else; and it can be changed again."""
    folders = list_folders(directory)
    assert {*os.listdir(directory)} - {".slipstream.lock"} == {folder.name for folder in folders}
    if not folders:
        changed_datasets.make(directory)
        return None
    folder = directory / "support"
    rows = list(read_rows(folder, "train"))
    assert manifest(folder).counts.rows["train"] == len(rows)
    assert remove_rows(folder, lambda _: False) == len(rows)
    with new_folder(directory, changed_datasets.dataset(), replace=True) as again:
        again.publish({})
    return digests(rows)
