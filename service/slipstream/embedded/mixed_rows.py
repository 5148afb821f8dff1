"""Rows of a data set that each step of `mix` takes beside its experiences.

Which rows a step takes depends on how many were taken before it, and on nothing else. That number is published with a
version (`trained_on.json`), so a Trainer that was killed takes again the rows of the steps that were lost, and no
others. A deletion of data is applied before the next step: the notes of deletions and the data set are looked at then.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import structlog

from slipstream.datasets import folder
from slipstream.datasets.erasure import NOTES, apply_notes
from slipstream.datasets.manifest import MANIFEST, Manifest
from slipstream.datasets.row import Kind
from slipstream.datasets.row_order import order
from slipstream.datasets.selection import taught
from slipstream.embedded.checkpoints import trained_on
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.dataset_inputs import row_tokenizer
from slipstream.embedded.learning import TaughtRow
from slipstream.embedded.mix_config import Mix
from slipstream.embedded.shared_prompts import NO_LOSS
from slipstream.embedded.token_table import TokenTable, write_table
from slipstream.errors import ConfigError

log = structlog.get_logger(__name__)

_FOLDER = "mixed_rows"


class MixedRows:
    """The rows of one data set, in an order that goes on for ever.

    Args:
        held_out: share of the sessions that is held out now; the data set may have been made when fewer were.

    Raises:
        ConfigError: it is no data set that can be mixed in; names the key.
        RunError: none of its rows can be trained on.
        DatasetError, NotesError: it, or the notes of deletions beside it, cannot be read.
    """

    def __init__(self, config: EngineConfig, mix: Mix, held_out: float) -> None:
        self._mix = mix
        self._held_out = held_out
        self._tokenizer = row_tokenizer(config, Path(config.model.model_path))
        self._folder = config.job_dir / _FOLDER
        self._taken = self._published = 0
        self._seen = self._look()
        self._made, self._table = self._read()
        self._place = lru_cache(maxsize=2)(self._order)

    @property
    def experiences(self) -> int:
        """Return how many experiences a step waits for."""
        return self._mix.experiences

    @property
    def dataset(self) -> tuple[str, str]:
        """Return the data set's name and digest."""
        return self._made.name, self._made.digest

    def go_on_from(self, job_dir: Path, version: int) -> None:
        """Go on behind the rows that a version was trained on; those of steps after it are taken again."""
        self._taken = self._published = taken_by(job_dir, version)

    def beside(self, experiences: int) -> list[TaughtRow]:
        """Return the next rows for a step with so many experiences. They count as taken from `took` on."""
        self._refresh()
        rows, count = self._table.dataset, len(self._table.weights)
        found = []
        for number in range(self._taken, self._taken + self._mix.rows_beside(experiences)):
            row = rows[self._place(number // count)[number % count]]
            ids, labels = np.asarray(row["input_ids"], np.int32), np.asarray(row["labels"], np.int32)
            prompt = int((labels == NO_LOSS).sum())
            found.append((ids[:prompt], ids[prompt:]))
        return found

    def took(self, rows: int) -> None:
        """Count rows that a step was trained on."""
        self._taken += rows

    def said(self) -> dict[str, Any]:
        """Return what `trained_on.json` says of the version after the last published one; nothing if it was trained on
        none of the rows."""
        rows, made = self._taken - self._published, self._made
        if not rows:
            return {}
        return {
            "dataset": {
                "name": made.name,
                "digest": made.digest,
                "kind": str(made.kind),
                "rows": rows,
                "taken": self._taken,
                "left_out": self._table.left_out,
            }
        }

    def published(self) -> None:
        """Note that the rows that were taken are in a published version."""
        self._published = self._taken

    def _order(self, epoch: int) -> list[int]:
        if not self._mix.shuffles:
            return list(range(len(self._table.weights)))
        return order(self._table.weights, 1, self._mix.seed + epoch)

    def _refresh(self) -> None:
        """Read the data set anew if it was replaced, or if data was deleted, since it was read."""
        seen = self._look()
        if seen == self._seen:
            return
        if self._apply_deletions().digest != self._made.digest:
            log.warning("the data set was changed: its rows are read anew", dataset=self._made.name)
            self._made, self._table = self._read()
            self._place.cache_clear()
        self._seen = seen

    def _look(self) -> tuple[tuple[int, int, int] | None, ...]:
        paths = (self._mix.path / MANIFEST, self._mix.path.parent / NOTES)
        return tuple(_state(path) for path in paths)

    def _apply_deletions(self) -> Manifest:
        """Apply the deletions that are noted. Returns the data set's manifest after it."""
        mix = self._mix
        self._manifest()  # else the folder of a wrong path would be made
        try:
            applied = apply_notes(mix.path.parent)
        except OSError as error:
            raise ConfigError(
                f"{mix.key}: expected a folder that can be written, because deletions are applied before training; "
                f"{mix.path.parent}: {error.strerror}"
            ) from error
        applied.check(mix.key, mix.path)
        return self._manifest()

    def _manifest(self) -> Manifest:
        mix = self._mix
        missing = ConfigError(f"{mix.key}: expected the folder of a data set, found none at {mix.path}")
        if not mix.path.parent.is_dir():
            raise missing
        try:
            return folder.manifest(mix.path)
        except folder.DatasetMissing as error:
            raise missing from error

    def _read(self) -> tuple[Manifest, TokenTable]:
        mix = self._mix
        made = self._apply_deletions()
        if made.kind is not Kind.SFT:
            raise ConfigError(f"{mix.key}: expected a data set of kind sft, found kind {made.kind} at {mix.path}")
        try:
            table = write_table(taught(mix.path, self._held_out), made.kind, self._tokenizer, {}, self._folder)
        finally:
            # The rows stay mapped into memory, and no copy of what may have to be deleted outlives the process.
            shutil.rmtree(self._folder, ignore_errors=True)
        log.info(
            "mixing rows of a data set in",
            dataset=made.name,
            rows=len(table.weights),
            left_out=table.left_out,
            share=f"{mix.rows} beside {mix.experiences} experiences",
        )
        return made, table


def taken_by(job_dir: Path, version: int) -> int:
    """Return the number of rows that `mix` had taken at a version: what it says, or the next of those before it that
    says anything. 0 if none does."""
    while version > 0:
        said = trained_on(job_dir, version)
        dataset = said.get("dataset")
        taken = dataset.get("taken") if isinstance(dataset, Mapping) else None
        if isinstance(taken, int):
            return taken
        parent = said.get("parent")
        if not isinstance(parent, int) or parent >= version:
            return 0
        version = parent
    return 0


def _state(path: Path) -> tuple[int, int, int] | None:
    """Inode, size and time of change of a file, of which one differs when another took its place."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
