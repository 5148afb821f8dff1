"""The export of a data set: rows of the store, without repetitions, as a folder that stays when the store forgets."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import structlog

from slipstream import __version__
from slipstream.datasets import by_ray, erasure
from slipstream.datasets.config import Dataset
from slipstream.datasets.duplicates import Duplicates
from slipstream.datasets.folder import manifest, new_folder
from slipstream.datasets.manifest import Manifest
from slipstream.datasets.reader import reader
from slipstream.datasets.row import Row
from slipstream.datasets.sources import Dropped
from slipstream.errors import ConfigError
from slipstream.selection.held_out import held_out_at
from slipstream.settings.sidecar import Settings

_log = structlog.get_logger(__name__)

_SAID = 30.0
"""Seconds between two lines of the log that say how far it is."""


async def export(
    settings: Settings, dataset: Dataset, directory: Path, *, replace: bool = False, workers: int = 0
) -> Manifest:
    """Write a data set; a sidecar may use the store meanwhile.

    Args:
        directory: in which its folder is made.
        replace: a data set of that name is replaced, once the new one is whole.
        workers: processes of Ray Data that read and score; 0 for this process alone. The data set is the same.

    Raises:
        DatasetExists: there is one of that name.
        ConfigError, StoreAway: the store cannot be read.
    """
    try:
        made = await _export(settings, dataset, directory, replace=replace, workers=workers)
    finally:  # deletions that came meanwhile, of the new data set, or of the one that it did not replace
        applied = await asyncio.to_thread(erasure.apply_notes, directory)
    return manifest(directory / dataset.name) if dataset.name in applied.rows else made


async def _export(settings: Settings, dataset: Dataset, directory: Path, *, replace: bool, workers: int) -> Manifest:
    share = settings.datasets.held_out if dataset.held_out.share is None else dataset.held_out.share
    if share < settings.datasets.held_out:
        raise ConfigError(
            f"dataset.held_out.share: expected at least {settings.datasets.held_out:g}, the sidecar's "
            f"datasets.held_out, because versions are evaluated on these sessions; found {share:g}"
        )
    duplicates = Duplicates(dataset.dedup, dataset.seed)
    reading = _Reading(settings, dataset)
    with new_folder(directory, dataset, replace=replace) as folder:
        async for found in reading.by_ray(workers) if workers else reading.here():
            if isinstance(found, Dropped):
                folder.drop(found.reason)
            elif why := duplicates.seen(found):
                folder.drop(why)
            else:
                place = held_out_at(found.provenance.session)
                origin = dataclasses.replace(found.provenance, held_out_at=place)
                row = dataclasses.replace(found, provenance=origin)
                folder.add("held_out" if place < share else "train", row)
        return folder.publish(_about(settings, share, reading.failed))


class _Reading:
    """Reads all blocks, and says now and then how far it is.

    Attributes:
        failed: answers that a calculator failed on.
    """

    def __init__(self, settings: Settings, dataset: Dataset) -> None:
        self.failed = 0
        self._settings = settings
        self._dataset = dataset
        self._said = time.monotonic()

    async def here(self) -> AsyncIterator[Row | Dropped]:
        """Read in this process, with as much memory as a page of the store takes."""
        async with reader(self._settings, self._dataset) as reading:
            blocks = await reading.blocks()
            for done, block in enumerate(blocks):
                async for found in reading.rows(block):
                    yield found
                self.failed = reading.failed
                self._say(done + 1, len(blocks))

    async def by_ray(self, workers: int) -> AsyncIterator[Row | Dropped]:
        """Read in processes of Ray Data. Nothing else runs in this one's event loop meanwhile."""
        async with reader(self._settings, self._dataset) as reading:
            blocks = await reading.blocks()
        for done, block in enumerate(by_ray.read(self._settings, self._dataset, blocks, workers)):
            for found in block.found:
                yield found
            self.failed += block.failed
            self._say(done + 1, len(blocks))

    def _say(self, done: int, blocks: int) -> None:
        if time.monotonic() - self._said > _SAID:
            self._said = time.monotonic()
            _log.info("dataset_export", dataset=self._dataset.name, parts_read=done, of=blocks)


def _about(settings: Settings, share: float, failed: int) -> Mapping[str, Any]:
    return {
        "slipstream": __version__,
        "redacted": [rule.name or "python" for rule in settings.capture.redact],
        "store_false": settings.capture.store_false,
        "held_out": {
            "by": "session",
            "share": share,
            "kept_from_reinforcement_learning": share <= settings.datasets.held_out,
        },
        "scoring_failed": failed,
        "reward_range": list(settings.rewards.clip),
    }
