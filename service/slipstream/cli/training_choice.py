"""Rows that `slipstream train` takes of a data set, and what it says at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from slipstream.datasets.config import Dataset
    from slipstream.datasets.coreset import RowScores
    from slipstream.datasets.row import Row
    from slipstream.datasets.trained_dataset import Outcome


class RowChoice:
    """The training rows of a data set, by its coreset and with its earlier data sets.

    Args:
        where: the folder of data sets.
        held_out: the share of sessions that is not trained on.
    """

    def __init__(self, dataset: Dataset, where: Path, held_out: float) -> None:
        self._dataset = dataset
        self._where = where
        self._held_out = held_out

    def rows(self, score: Callable[[Sequence[Row]], RowScores] | None) -> Iterable[Row]:
        """Return the rows, and print what was chosen, if anything was.

        Args:
            score: makes losses and embeddings of rows; None where no strategy that needs them is configured.
        """
        from slipstream.datasets.folder import read_rows
        from slipstream.datasets.selection import is_selective, selected, taught

        path = self._where / self._dataset.name
        rows = taught(path, self._held_out)
        if not is_selective(self._dataset):
            return rows
        chosen = selected(
            self._dataset,
            rows,
            lambda name: taught(self._where / name, self._held_out),
            score or _unscored,
            {row.provenance.session for row in read_rows(path, "held_out")},
        )
        _show_choice(len(chosen.rows), chosen.report)
        return chosen.rows


def show(done: Outcome) -> None:
    """Print the end of a run.

    Raises:
        Exit: with code 1, if it was stopped before its end.
    """
    if done.version is None:
        print(f"stopped after step {done.steps}; --resume goes on")
        raise typer.Exit(1)
    started = f"version {done.parent}" if done.parent else "the base model"
    print(f"version {done.version}: {done.steps} steps from {started}")
    for reason, count in done.left_out.items():
        print(f"  left out, {reason}: {count}")
    for name, value in done.metrics.items():
        print(f"  {name}: {value:.4g}")
    if done.discarded:
        print(f"  {done.discarded} experiences of earlier versions are discarded: they are off-policy now")
    if done.warning:
        print(f"  warning: {done.warning}")


def _unscored(rows: Sequence[Row]) -> RowScores:
    raise AssertionError(f"a coreset that goes by scores was let through, with {len(rows)} rows")


def _show_choice(rows: int, report: Mapping[str, Any]) -> None:
    print(f"{rows} rows are trained on, {report.get('replayed', 0)} of them of earlier data sets")
    for which, figures in report.get("coreset", {}).items():
        print(f"  {which}: " + ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))
