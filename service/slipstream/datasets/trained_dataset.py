"""The data set of a training run, the version that the run starts from, and how the run ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from slipstream.datasets.row import Kind, Row

Start: TypeAlias = Literal["latest", "base"] | int
"""The newest version, the base model, or a number."""


@dataclass(frozen=True)
class TrainedDataset:
    """The data set that is trained on.

    Attributes:
        name: of its folder.
        digest: of its files, as its manifest has it.
        kind: what each row teaches.
        start: version that training goes on from.
        task_weights: weights of the rows of tasks with these labels.
        seed: of the rows' order and of fresh adapters.
        also: earlier data sets whose rows are among them.
    """

    name: str
    digest: str
    kind: Kind
    start: Start = "latest"
    task_weights: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    also: tuple[str, ...] = ()

    def said(self, rows: int, sources: Mapping[str, int], left_out: Mapping[str, int]) -> Mapping[str, Any]:
        """Return what `trained_on.json` says of it.

        Args:
            rows: that were trained on.
            sources: their number by source.
            left_out: rows that cannot be trained on, by the reason.
        """
        return {
            "name": self.name,
            "digest": self.digest,
            "kind": str(self.kind),
            "also": list(self.also),
            "rows": rows,
            "sources": sources,
            "left_out": left_out,
        }


@dataclass(frozen=True)
class Outcome:
    """The end of a run.

    Attributes:
        version: that was published; None if a signal stopped the run before its last step.
        parent: version that it started from; 0 for the base model.
        steps: that were done, with those before a kill.
        rows: that can be trained on.
        left_out: rows that cannot, by the reason.
        metrics: means over the last steps, as `trained_on.json` has them.
        discarded: experiences of earlier versions that will not be trained on.
        warning: about what was learned; None if there is nothing to say.
    """

    version: int | None
    parent: int
    steps: int
    rows: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    discarded: int = 0
    warning: str | None = None


def parent_of(start: Start, newest: int) -> int:
    """Return the version that training goes on from; 0 for the base model."""
    if start == "latest":
        return newest
    return 0 if start == "base" else start


def weight_of(row: Row, task_weights: Mapping[str, float]) -> float:
    """Return the weight of a row: the largest of its task's labels, or 1 if none has one."""
    given = [task_weights[label] for label in row.provenance.labels if label in task_weights]
    return max(given, default=1.0)
