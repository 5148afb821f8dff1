"""The rows of a data set as a table of token ids on disk, in the columns that TRL's trainers take.

Rows are written as they are read, and read from the file as they are trained on: memory does not grow with them.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features, List, Value  # type: ignore[import-untyped]
from datasets.arrow_writer import ArrowWriter  # type: ignore[import-untyped]

from slipstream.datasets.row import Kind, Row
from slipstream.datasets.trained_dataset import weight_of
from slipstream.embedded.row_tokens import LeftOut, RowTokenizer, RowTokens, tokenised
from slipstream.embedded.shared_prompts import NO_LOSS
from slipstream.trinity.noted_run import RunError

_WEIGHTLESS = "of weight 0 by dataset.task_weights"
_IDS = List(Value("int32"))
_FEATURES = {
    Kind.SFT: Features({"input_ids": _IDS, "labels": _IDS}),
    Kind.PREFERENCE: Features({"prompt_ids": _IDS, "chosen_ids": _IDS, "rejected_ids": _IDS}),
    Kind.KTO: Features({"prompt_ids": _IDS, "completion_ids": _IDS, "label": Value("bool")}),
    Kind.CORRECTION: Features({"prompt_ids": _IDS, "hinted_ids": _IDS, "answer_ids": _IDS, "correction_ids": _IDS}),
}


@dataclass(frozen=True)
class TokenTable:
    """Rows that can be trained on.

    Attributes:
        dataset: in the columns of the kind's trainer.
        weights: of each row.
        sources: rows by their provenance's source.
        left_out: rows that are not in it, by the reason.
        lengths: tokens of each row, prompt and answer; of a pair, of the longer one.
        shared: tokens that the prompts of all rows begin with alike.
        digest: SHA-256 of the token ids and weights, in their order.
    """

    dataset: Dataset
    weights: list[float]
    sources: dict[str, int]
    left_out: dict[str, int]
    lengths: list[int]
    shared: int
    digest: str

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return max(self.lengths)


def write_table(
    rows: Iterable[Row], kind: Kind, tokenizer: RowTokenizer, task_weights: Mapping[str, float], folder: Path
) -> TokenTable:
    """Tokenise rows into `folder`, which is emptied first.

    Args:
        task_weights: weight of the rows of tasks with a label; a row of several has the largest, one of none 1.

    Raises:
        RunError: a row is of another kind, or none is left.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / "rows.arrow"
    seen = hashlib.sha256()
    weights: list[float] = []
    sources: Counter[str] = Counter()
    dropped: dict[LeftOut, int] = {}
    lengths: list[int] = []
    weightless = 0
    shared: list[int] | None = None
    with ArrowWriter(path=str(path), features=_FEATURES[kind]) as writer:
        for row, ids in tokenised(_of_kind(rows, kind), tokenizer, dropped):
            weight = weight_of(row, task_weights)
            if not weight:
                weightless += 1
                continue
            columns = _columns(kind, ids)
            writer.write(columns)
            for column in columns.values():
                seen.update(np.asarray(column, np.int32).tobytes() + b"|")
            seen.update(np.float64(weight).tobytes())
            weights.append(weight)
            sources[str(row.provenance.source)] += 1
            lengths.append(ids.longest)
            shared = ids.prompt if shared is None else _alike(shared, ids.prompt)
        writer.finalize()
    left_out = {str(reason): count for reason, count in dropped.items()}
    if weightless:
        left_out[_WEIGHTLESS] = weightless
    if not weights:
        why = "; ".join(f"{count} {reason}" for reason, count in left_out.items()) or "the data set has none"
        raise RunError(f"no row to train on: {why}")
    return TokenTable(
        dataset=Dataset.from_file(str(path)),
        weights=weights,
        sources=dict(sources),
        left_out=left_out,
        lengths=lengths,
        shared=len(shared or ()),
        digest=seen.hexdigest(),
    )


def _of_kind(rows: Iterable[Row], kind: Kind) -> Iterable[Row]:
    for number, row in enumerate(rows, 1):
        if row.kind is not kind:
            raise RunError(f"row {number}: expected kind {kind}, found {row.kind}")
        yield row


def _alike(one: list[int], other: list[int]) -> list[int]:
    """The tokens that both begin with."""
    length = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]


def _columns(kind: Kind, ids: RowTokens) -> dict[str, Any]:
    if kind is Kind.SFT:
        return {"input_ids": [*ids.prompt, *ids.answer], "labels": [NO_LOSS] * len(ids.prompt) + ids.answer}
    if kind is Kind.PREFERENCE:
        return {"prompt_ids": ids.prompt, "chosen_ids": ids.answer, "rejected_ids": ids.rejected or []}
    if kind is Kind.CORRECTION:
        return {
            "prompt_ids": ids.prompt,
            "hinted_ids": ids.hinted or [],
            "answer_ids": ids.answer,
            "correction_ids": ids.correction or [],
        }
    return {"prompt_ids": ids.prompt, "completion_ids": ids.answer, "label": bool(ids.good)}
