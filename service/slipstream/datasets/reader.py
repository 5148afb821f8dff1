"""The store, read in blocks as the rows of a data set."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from slipstream.datasets.config import Dataset
from slipstream.datasets.corrected import CorrectionSources
from slipstream.datasets.correction_judge import CorrectionJudge
from slipstream.datasets.pairs import PairSources
from slipstream.datasets.row import Kind, Row
from slipstream.datasets.scoring import AnswerScorer
from slipstream.datasets.sources import Block, Dropped, Sources
from slipstream.errors import ConfigError
from slipstream.isolation import Isolation
from slipstream.settings.sidecar import Settings
from slipstream.store import schema
from slipstream.store.cipher import Cipher
from slipstream.store.database import Database


class Reader:
    """Reads a data set's blocks. Made by `reader`."""

    def __init__(self, sources: Sources | PairSources | CorrectionSources, scorer: AnswerScorer | None) -> None:
        self._sources = sources
        self._scorer = scorer

    async def blocks(self) -> list[Block]:
        """All that is to be read, in order."""
        return await self._sources.blocks()

    def rows(self, block: Block) -> AsyncIterator[Row | Dropped]:
        """Read a block: each answer, or pair, as a row or with the reason why it is none, in the order of the store."""
        return self._sources.rows(block)

    @property
    def failed(self) -> int:
        """Return the number of answers so far that a calculator failed on."""
        return 0 if self._scorer is None else self._scorer.failed


@asynccontextmanager
async def reader(settings: Settings, dataset: Dataset) -> AsyncIterator[Reader]:
    """Open the store for reading; a sidecar may use it meanwhile.

    Raises:
        ConfigError, StoreAway: it cannot be read, or a judge is asked for that the sidecar has not.
    """
    async with AsyncExitStack() as held:
        keys = settings.store.keys
        database = Database(settings.store.url, Cipher(keys) if keys else None)
        held.push_async_callback(database.close)
        async with database.snapshot() as connection:
            await connection.run_sync(schema.check_newest)
        middle = sum(settings.rewards.clip) / 2
        if dataset.kind is Kind.CORRECTION:
            yield Reader(CorrectionSources(database, dataset, _judge(settings, dataset, held), middle), None)
            return
        scorer = await _scorer(settings, held) if dataset.score else None
        made = PairSources if dataset.kind is Kind.PREFERENCE else Sources
        yield Reader(made(database, dataset, scorer, middle), scorer)


async def _scorer(settings: Settings, held: AsyncExitStack) -> AnswerScorer | None:
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
    """The judge of corrections, which asks the endpoint of the sidecar's `judge` calculator."""
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
