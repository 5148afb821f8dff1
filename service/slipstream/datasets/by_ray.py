"""The store read by several processes, on Ray Data.

Blocks are read and scored in parallel and come back in their order, so that the data set is the same as that of one
process. On a cluster each machine has to reach the store: PostgreSQL, not a file.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from slipstream.datasets.claim import DatasetError
from slipstream.datasets.config import Dataset
from slipstream.datasets.reader import reader
from slipstream.datasets.row import Row
from slipstream.datasets.sources import Block, Dropped
from slipstream.errors import ConfigError
from slipstream.settings.sidecar import Settings


@dataclass(frozen=True, slots=True)
class ReadBlock:
    """A block that was read.

    Attributes:
        found: as of `Reader.rows`.
        failed: answers that a calculator failed on.
    """

    found: list[Row | Dropped]
    failed: int


def read(settings: Settings, dataset: Dataset, wanted: Sequence[Block], workers: int) -> Iterator[ReadBlock]:
    """Read blocks, and return them in their order. A Ray that runs (`RAY_ADDRESS`) is used; else one is started here.

    Args:
        workers: processes.

    Raises:
        ConfigError: Ray is not installed.
        DatasetError: it does not start, or does not answer.
    """
    try:
        import ray
        import ray.data
    except ModuleNotFoundError as error:
        raise ConfigError("--ray: needs the package ray, which is not installed; the extra [ray] brings it") from error
    if not wanted:
        return
    if not ray.is_initialized():
        # One that happens to run on this machine is not joined: it may be another program's.
        here: dict[str, Any] = {"address": "local", "_node_ip_address": "127.0.0.1", "include_dashboard": False}
        own = {} if "RAY_ADDRESS" in os.environ else here
        try:
            ray.init(log_to_driver=False, logging_level=logging.WARNING, **own)
        except Exception as error:  # Ray has no class for what keeps it from starting, or from being found
            raise DatasetError(f"--ray: Ray did not start, or does not answer: {error}") from error
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    parts = ray.data.from_items([{"block": pickle.dumps(block)} for block in wanted], override_num_blocks=len(wanted))
    done = parts.map(
        cast(Any, _Read), fn_constructor_args=(settings, dataset), compute=ray.data.ActorPoolStrategy(size=workers)
    )
    for each in done.iter_rows():
        yield pickle.loads(each["read"])  # noqa: S301 - written by the function below


class _Read:
    """Reads blocks, in a process of Ray's."""

    def __init__(self, settings: Settings, dataset: Dataset) -> None:
        self._settings = settings
        self._dataset = dataset

    def __call__(self, item: dict[str, Any]) -> dict[str, Any]:
        block: Block = pickle.loads(item["block"])  # noqa: S301 - written by the function above
        return {"read": pickle.dumps(asyncio.run(_read(self._settings, self._dataset, block)))}


async def _read(settings: Settings, dataset: Dataset, block: Block) -> ReadBlock:
    async with reader(settings, dataset) as reading:
        return ReadBlock([found async for found in reading.rows(block)], reading.failed)
