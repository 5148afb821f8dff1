"""The rows of a data set in the order in which Trinity-RFT's Trainer is to read them, in one file.

Its reader goes through a file from its first line to its last. So the file has all passes over the rows, one after the
other, each drawn as for the embedded engine (`row_order`), and as many lines as all training steps take: a Trainer that
goes on after a kill begins with the line that is next.
"""

from __future__ import annotations

import hashlib
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipstream.datasets.formats import Unsayable, to_line
from slipstream.datasets.row import Row
from slipstream.datasets.row_order import order
from slipstream.datasets.trained_dataset import TrainedDataset, weight_of
from slipstream.errors import ConfigError, SlipstreamError
from slipstream.jsontext import to_json

_WEIGHTLESS = "of weight 0 by dataset.task_weights"

Refuses = Callable[[dict[str, Any]], str | None]
"""Takes a line and returns why it cannot be trained on; None if it can."""


@dataclass(frozen=True)
class TrinityRows:
    """Rows that were written.

    Attributes:
        folder: that Trinity is given.
        rows: that can be trained on.
        steps: training steps.
        sources: rows by their provenance's source.
        left_out: rows that are not in it, by the reason.
        digest: SHA-256 of the lines in their order.
    """

    folder: Path
    rows: int
    steps: int
    sources: dict[str, int]
    left_out: dict[str, int]
    digest: str


def write_rows(
    rows: Iterable[Row],
    dataset: TrainedDataset,
    folder: Path,
    refuses: Refuses,
    *,
    batch: int,
    epochs: int,
    most: int | None,
) -> TrinityRows:
    """Write rows into `folder`, which is emptied first. Memory has one number a row.

    Args:
        batch: rows of a training step; the last step is filled up with the first rows.
        epochs: passes over the rows.
        most: training steps at most; None for all.

    Raises:
        SlipstreamError: no row can be trained on.
        ConfigError: a row is of another kind.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    once = folder.with_name(f".{folder.name}.once")
    left_out: Counter[str] = Counter()
    sources: Counter[str] = Counter()
    weights: list[float] = []
    starts = [0]
    with once.open("wb") as file:
        for row in rows:
            if row.kind is not dataset.kind:
                raise ConfigError(f"dataset {dataset.name}: expected rows of kind {dataset.kind}, found {row.kind}")
            weight = weight_of(row, dataset.task_weights)
            line, why = _line(row, refuses)
            if line is None or not weight:
                left_out[why or _WEIGHTLESS] += 1
                continue
            starts.append(starts[-1] + file.write(line))
            weights.append(weight)
            sources[str(row.provenance.source)] += 1
    if not weights:
        once.unlink()
        why = "; ".join(f"{count} {reason}" for reason, count in left_out.items()) or "the data set has none"
        raise SlipstreamError(f"no row to train on: {why}")
    drawn = order(weights, epochs, dataset.seed)
    steps = math.ceil(len(drawn) / batch)
    steps = min(steps, most or steps)
    seen = hashlib.sha256()
    with once.open("rb") as source, (folder / "train.jsonl").open("wb") as file:
        for number in range(steps * batch):
            place = drawn[number % len(drawn)]
            source.seek(starts[place])
            line = source.read(starts[place + 1] - starts[place])
            seen.update(line)
            file.write(line)
    once.unlink()
    return TrinityRows(folder, len(weights), steps, dict(sources), dict(left_out), seen.hexdigest())


def _line(row: Row, refuses: Refuses) -> tuple[bytes | None, str | None]:
    """The row as a line of Trinity's format, or the reason why it cannot be trained on."""
    try:
        line = to_line(row, "trinity")
    except Unsayable as error:
        return None, f"the format cannot say it: {error.reason}"
    why = refuses(line)
    return (to_json(line) + b"\n", None) if why is None else (None, why)
