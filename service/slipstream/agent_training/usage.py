"""The data of an agent's training by what it is for: supervised rows, pairs, and cases of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slipstream.agent_training.evaluators import BenchmarkSample
from slipstream.datasets.folder import read_rows
from slipstream.datasets.row import Kind, Row
from slipstream.trajectory import message_text, message_tool_calls

SPLITS = {"train": "train", "dev": "held_out", "test": "held_out"}
"""Splits of a data set by the articles' names. There is one held-out split, which no training sees."""


class AgentTrainingUsage:
    """Rows of data sets.

    Args:
        directory: the folder of data sets.
        sources: names of the data sets for `sft` and `preference`, and of the one that `benchmark` cases are made of.
    """

    SOURCES: Mapping[str, str] = {"sft": "agent_sft", "preference": "agent_pairs", "benchmark": "agent_sft"}

    def __init__(self, directory: str | Path = "datasets", sources: Mapping[str, str] | None = None) -> None:
        self._directory = Path(directory)
        self._sources = {**self.SOURCES, **(sources or {})}

    def get_sft_data(self, split: str = "train") -> Iterator[dict[str, Any]]:
        """Yield supervised rows, in TRL's form.

        Raises:
            ValueError: the split is unknown, or the data set is of another kind.
            DatasetError: it cannot be read.
        """
        for row in self._rows("sft", split, Kind.SFT):
            yield {"prompt": list(row.prompt), "completion": [row.answer], "tools": list(row.tools)}

    def get_preference_data(self, split: str = "train") -> Iterator[dict[str, Any]]:
        """Yield pairs, in TRL's form.

        Raises:
            ValueError: the split is unknown, or the data set is of another kind.
            DatasetError: it cannot be read.
        """
        for row in self._rows("preference", split, Kind.PREFERENCE):
            pair = {"prompt": list(row.prompt), "chosen": [row.answer], "rejected": [row.rejected]}
            yield {**pair, "tools": list(row.tools)}

    def get_evaluation_data(self, split: str = "test") -> Iterator[BenchmarkSample]:
        """Yield cases: the last request of each row, and the tools that its answer calls. Cases of whole conversations
        are what `slipstream evaluate` asks.

        Raises:
            ValueError: the split is unknown, or the data set is of another kind.
            DatasetError: it cannot be read.
        """
        for row in self._rows("benchmark", split, Kind.SFT):
            asked = [message_text(message) for message in row.prompt if message.get("role") == "user"]
            calls = message_tool_calls(row.answer)
            yield BenchmarkSample(
                instruction=asked[-1] if asked else "",
                target_tools=calls,
                reference=None if calls else message_text(row.answer),
                session=row.provenance.session,
            )

    def iter_samples(self, split: str) -> Iterator[BenchmarkSample]:
        """Yield the cases of a split, as a `Benchmark` does."""
        return self.get_evaluation_data(split)

    def _rows(self, use: str, split: str, kind: Kind) -> Iterator[Row]:
        if split not in SPLITS:
            raise ValueError(f"split: expected {', '.join(SPLITS)}, found {split!r}")
        name = self._sources[use]
        for row in read_rows(self._directory / name, SPLITS[split]):
            if row.kind is not kind:
                raise ValueError(f"{name}: expected a data set of kind {kind}, found {row.kind}")
            yield row
