"""The rows that are trained on: a coreset of a data set's, and rows of earlier data sets among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream.datasets.config import Dataset
from slipstream.datasets.folder import read_rows
from slipstream.datasets.replay import with_replay
from slipstream.datasets.row import Row

if TYPE_CHECKING:
    from slipstream.datasets.coreset import RowScores


@dataclass(frozen=True)
class Selected:
    """Rows that were selected.

    Attributes:
        report: of a coreset that goes by scores, the choice and a random one beside it, as `coreset.compared` measures
            them; `replayed` is the number of rows of earlier data sets.
    """

    rows: Sequence[Row]
    report: Mapping[str, Any] = field(default_factory=dict)


def taught(folder: Path, share: float) -> Iterator[Row]:
    """Read the training rows of a data set, without those of sessions that are held out with this share: it may have
    been made when fewer were.

    Raises:
        DatasetMissing, DatasetError: it cannot be read.
    """
    for row in read_rows(folder, "train"):
        place = row.provenance.held_out_at
        if place is None or place >= share:
            yield row


def is_selective(dataset: Dataset) -> bool:
    """Return whether anything is selected. Else the rows need never be in memory together."""
    return dataset.coreset is not None or dataset.replay is not None


def selected(
    dataset: Dataset,
    rows: Iterable[Row],
    earlier: Callable[[str], Iterable[Row]],
    score: Callable[[Sequence[Row]], RowScores],
    held_out: Iterable[str] = (),
) -> Selected:
    """Select the rows to train on. All rows of the data set are in memory meanwhile.

    Args:
        rows: its training rows.
        earlier: reads the training rows of an earlier data set by its name.
        score: makes losses and embeddings of rows, by one forward pass of the policy.
        held_out: sessions that are held out, as earlier rows name theirs.

    Raises:
        ValueError: a score cannot be used.
    """
    kept: Sequence[Row] = list(rows)
    report: dict[str, Any] = {}
    if dataset.coreset is not None:
        from slipstream.datasets.coreset import choose, compared, needs_scores, size_of  # needs numpy

        counted = needs_scores(dataset.coreset) and size_of(dataset.coreset, len(kept)) < len(kept)
        scores = score(kept) if counted else None
        rewards = [row.provenance.rewards[0] if row.provenance.rewards else None for row in kept]
        places = choose(dataset.coreset, rewards, scores)
        if scores is not None:
            report["coreset"] = compared(dataset.coreset, places, scores)
        kept = [kept[place] for place in places]
    if dataset.replay is not None:
        before = len(kept)
        all_earlier = (row for name in dataset.replay.datasets for row in earlier(name))
        kept = with_replay(kept, all_earlier, dataset.replay, held_out, dataset.seed)
        report["replayed"] = len(kept) - before
    return Selected(kept, report)
