"""The export of a data set: rows of the store, without repetitions, as a folder that stays when the store forgets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import structlog

from slipstream import __version__
from slipstream.datasets import erasure
from slipstream.datasets.config import Dataset
from slipstream.datasets.corrected import CorrectionSources
from slipstream.datasets.correction_judge import CorrectionJudge
from slipstream.datasets.duplicates import Duplicates
from slipstream.datasets.folder import Manifest, manifest, new_folder
from slipstream.datasets.pairs import PairSources
from slipstream.datasets.row import Kind, Row
from slipstream.datasets.scoring import AnswerScorer
from slipstream.datasets.sources import Dropped, Sources
from slipstream.errors import ConfigError
from slipstream.isolation import Isolation
from slipstream.selection.held_out import is_held_out
from slipstream.settings.sidecar import Settings
from slipstream.store import schema
from slipstream.store.cipher import Cipher
from slipstream.store.database import Database

_log = structlog.get_logger(__name__)

_SAID = 30.0
"""Seconds between two lines of the log that say how far it is."""


async def export(settings: Settings, dataset: Dataset, directory: Path, *, replace: bool = False) -> Manifest:
    """Write a data set; a sidecar may use the store meanwhile.

    Args:
        directory: in which its folder is made.
        replace: a data set of that name is replaced, once the new one is whole.

    Raises:
        DatasetExists: there is one of that name.
        ConfigError, StoreAway: the store cannot be read.
    """
    try:
        made = await _export(settings, dataset, directory, replace=replace)
    finally:  # deletions that came meanwhile, of the new data set, or of the one that it did not replace
        removed = await asyncio.to_thread(erasure.apply_notes, directory)
    return manifest(directory / dataset.name) if dataset.name in removed else made


async def _export(settings: Settings, dataset: Dataset, directory: Path, *, replace: bool) -> Manifest:
    share = settings.datasets.held_out if dataset.held_out.share is None else dataset.held_out.share
    counted = 0
    said = time.monotonic()
    async with AsyncExitStack() as held:
        database = await _opened(settings, held)
        judge = _judge(settings, dataset, held)
        scorer = await _scorer(settings, dataset, held)
        duplicates = Duplicates(dataset.dedup, dataset.seed)
        folder = held.enter_context(new_folder(directory, dataset, replace=replace))
        async for found in rows(database, dataset, scorer, middle=sum(settings.rewards.clip) / 2, judge=judge):
            counted += 1
            if isinstance(found, Dropped):
                folder.drop(found.reason)
                continue
            if why := duplicates.seen(found):
                folder.drop(why)
                continue
            folder.add("held_out" if is_held_out(found.provenance.session, share) else "train", found)
            if time.monotonic() - said > _SAID:
                said = time.monotonic()
                _log.info("dataset_export", dataset=dataset.name, answers_read=counted)
        return folder.publish(_about(settings, dataset, scorer, share))


async def rows(
    database: Database,
    dataset: Dataset,
    scorer: AnswerScorer | None,
    *,
    middle: float,
    judge: CorrectionJudge | None = None,
) -> AsyncIterator[Row | Dropped]:
    """What a data set is made of, in the order of the store: each answer, or pair, as a row or with the reason why it
    is none.

    Args:
        middle: of the range of rewards; feedback above it is liking.
        judge: of messages that may be corrections; None if the detector decides alone.
    """
    sources: Sources | PairSources | CorrectionSources
    if dataset.kind is Kind.CORRECTION:
        sources = CorrectionSources(database, dataset, judge, middle)
    elif dataset.kind is Kind.PREFERENCE:
        sources = PairSources(database, dataset, scorer, middle)
    else:
        sources = Sources(database, dataset, scorer, middle)
    async for row in sources.rows():
        yield row


async def _opened(settings: Settings, held: AsyncExitStack) -> Database:
    keys = settings.store.keys
    database = Database(settings.store.url, Cipher(keys) if keys else None)
    held.push_async_callback(database.close)
    async with database.snapshot() as connection:
        await connection.run_sync(schema.check_newest)
    return database


async def _scorer(settings: Settings, dataset: Dataset, held: AsyncExitStack) -> AnswerScorer | None:
    if not dataset.score or dataset.kind is Kind.CORRECTION:
        return None
    isolation = Isolation(
        content_memory=settings.isolation.content_memory,
        content_timeout=settings.isolation.content_timeout,
        user_memory=settings.isolation.user_memory,
        start_timeout=settings.isolation.start_timeout,
    )
    held.callback(isolation.close)
    scorer = AnswerScorer(settings.rewards, isolation)
    held.push_async_callback(scorer.aclose)
    return scorer if scorer.scores else None


def _judge(settings: Settings, dataset: Dataset, held: AsyncExitStack) -> CorrectionJudge | None:
    """The judge of corrections, which asks the endpoint of the sidecar's `judge` calculator.

    Raises:
        ConfigError: the data set asks for one, and the sidecar has none.
    """
    if dataset.corrections is None or not dataset.corrections.judge:
        return None
    judges = [spec.judge for spec in settings.rewards.calculators if spec.judge is not None]
    if not judges:
        raise ConfigError(
            "dataset.corrections.judge: expected a `judge` among the sidecar's rewards.calculators, found none"
        )
    judge = CorrectionJudge(judges[0])
    held.push_async_callback(judge.aclose)
    return judge


def _about(settings: Settings, dataset: Dataset, scorer: AnswerScorer | None, share: float) -> Mapping[str, Any]:
    return {
        "slipstream": __version__,
        "redacted": [rule.name or "python" for rule in settings.capture.redact],
        "store_false": settings.capture.store_false,
        "held_out": {
            "by": dataset.held_out.by,
            "share": share,
            "kept_from_reinforcement_learning": share <= settings.datasets.held_out,
        },
        "scored_by": [] if scorer is None else list(scorer.components),
        "scoring_failed": 0 if scorer is None else scorer.failed,
        "reward_range": list(settings.rewards.clip),
    }
