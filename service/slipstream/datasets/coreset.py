"""Coresets: a part of the training rows, chosen by what the policy makes of them.

Losses and embeddings are the policy's own (`embedded/row_scores.py`). A high loss is a row that the policy does not
know yet, or a wrong answer. So rows whose reward is below the median of those that have one are never chosen for their
loss. Diversity is farthest-point traversal (T. Gonzalez, "Clustering to minimize the maximum intercluster distance",
1985; for training sets: O. Sener and S. Savarese, arXiv 1708.00489) by the cosine distance of embeddings less their
mean: the hidden states of a language model point all in nearly one direction.

A random choice of the same size is hard to beat (arXiv 2410.09335): `compared` measures each choice beside one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slipstream.datasets.config import Coreset

Floats = NDArray[np.float32]
Places = NDArray[np.intp]
"""Places of rows, counted from 0."""

_BLOCK = 1024
"""Rows whose distances to the chosen ones are in memory at once: 33 MB for 8,000 chosen ones."""


@dataclass(frozen=True, slots=True)
class RowScores:
    """The policy's view of rows.

    Attributes:
        losses: shape (n,): mean negative log-likelihood of a token of the answer, in nats.
        embeddings: shape (n, d), in any length.

    Raises:
        ValueError: the shapes do not fit, or a number is not finite.
    """

    losses: Floats
    embeddings: Floats

    def __post_init__(self) -> None:
        if self.losses.ndim != 1 or self.embeddings.ndim != 2 or len(self.losses) != len(self.embeddings):
            shapes = f"{self.losses.shape} and {self.embeddings.shape}"
            raise ValueError(f"losses, embeddings: expected the shapes (n,) and (n, d), found {shapes}")
        for name in ("losses", "embeddings"):
            finite = np.isfinite(getattr(self, name))
            if not finite.all():
                raise ValueError(
                    f"{name}: expected finite numbers, found another one in row {np.argwhere(~finite)[0][0]}"
                )


def needs_scores(coreset: Coreset) -> bool:
    """Return whether the choice takes losses and embeddings, which cost a forward pass over all rows."""
    return coreset.strategy != "random"


def size_of(coreset: Coreset, rows: int) -> int:
    """Return the number of rows that are chosen: never more than there are, and of a share at least one."""
    if coreset.share is not None:
        return min(rows, max(1, round(coreset.share * rows)))
    return min(rows, coreset.size or rows)


def choose(coreset: Coreset, rewards: Sequence[float | None], scores: RowScores | None = None) -> Places:
    """Choose rows. If too few may be chosen for their loss, the others are chosen for their difference. That may choose
    wrong answers too: `min_reward` of a source leaves them out beforehand.

    Args:
        rewards: of each row's answer; None where it was not scored.
        scores: of the same rows; needed by each strategy but `random`.

    Returns:
        The places of the rows, ascending.

    Raises:
        ValueError: the scores are missing, or of another number of rows.
    """
    rows = len(rewards)
    size = size_of(coreset, rows)
    if size == rows:
        return np.arange(rows)
    if not needs_scores(coreset):
        return _random(rows, size, coreset.seed)
    if scores is None or len(scores.losses) != rows:
        raise ValueError(f"scores: expected those of {rows} rows, found {0 if scores is None else len(scores.losses)}")
    by_loss = {"loss_topk": size, "hybrid": size // 2, "diversity": 0}[coreset.strategy]
    chosen = highest_loss(scores.losses, rewards, by_loss)
    return np.sort(farthest(scores.embeddings, size, chosen))


def highest_loss(losses: Floats, rewards: Sequence[float | None], size: int) -> Places:
    """Return the places of the rows with the highest loss among those that may be chosen for it, highest first; fewer
    than `size` if fewer may be."""
    may = _may_be_hard(rewards)
    order = np.argsort(-losses, kind="stable")
    return order[may[order]][:size]


def farthest(embeddings: Floats, size: int, chosen: Places | None = None) -> Places:
    """Add rows to those that are chosen, each time the one whose nearest chosen row is the farthest.

    Without any it begins with the row nearest to the mean, since an outlier would say the least.

    Args:
        embeddings: shape (n, d).
        size: of the result; at most n.
        chosen: places to begin with; they count.

    Returns:
        The chosen places, and then those that were added, in the order of choice.
    """
    units = _units(embeddings)
    found = [] if chosen is None else list(chosen)
    if size <= len(found):
        return np.asarray(found[:size], dtype=np.intp)
    if not found:
        found = [int(np.argmin(np.linalg.norm(embeddings - embeddings.mean(axis=0), axis=1)))]
    similar = _most_similar(units, units[found])
    similar[found] = np.inf  # never again, even where all rows are alike
    while len(found) < size:
        place = int(np.argmin(similar))
        found.append(place)
        np.maximum(similar, units @ units[place], out=similar)
        similar[place] = np.inf
    return np.asarray(found, dtype=np.intp)


def compared(coreset: Coreset, chosen: Places, scores: RowScores) -> Mapping[str, Any]:
    """Measure a choice, and a random one of the same size beside it.

    Returns:
        For `chosen` and `random`: the number of rows, their mean loss, and over all rows the mean and the largest
        cosine distance to the nearest of them.
    """
    rows = len(scores.losses)
    drawn = _random(rows, len(chosen), coreset.seed)
    units = _units(scores.embeddings)
    return {name: _measured(places, scores.losses, units) for name, places in (("chosen", chosen), ("random", drawn))}


def _measured(places: Places, losses: Floats, units: Floats) -> dict[str, float | int]:
    distances = 1 - _most_similar(units, units[places])
    return {
        "rows": len(places),
        "mean_loss": float(losses[places].mean()),
        "mean_distance": float(np.maximum(distances, 0).mean()),
        "largest_distance": float(max(distances.max(), 0.0)),
    }


def _random(rows: int, size: int, seed: int) -> Places:
    return np.sort(np.random.default_rng(seed).choice(rows, size, replace=False))


def _may_be_hard(rewards: Sequence[float | None]) -> NDArray[np.bool_]:
    """Rows with a reward of the median or more; if no row has a reward, all."""
    values = np.array([math.nan if reward is None else reward for reward in rewards], dtype=np.float64)
    if np.isnan(values).all():
        return np.ones(len(values), dtype=np.bool_)
    may: NDArray[np.bool_] = values >= np.nanmedian(values)
    return may


def _units(embeddings: Floats) -> Floats:
    """Each row less their mean, in length 1, so that a product is a cosine; a row of zeros stays one."""
    moved = embeddings - embeddings.mean(axis=0)
    lengths = np.linalg.norm(moved, axis=1, keepdims=True)
    return np.asarray(moved / np.maximum(lengths, 1e-12), dtype=np.float32)


def _most_similar(units: Floats, chosen: Floats) -> Floats:
    """The cosine of each row and the chosen row that is most like it, shape (n,)."""
    found = np.empty(len(units), dtype=np.float32)
    for begin in range(0, len(units), _BLOCK):
        found[begin : begin + _BLOCK] = (units[begin : begin + _BLOCK] @ chosen.T).max(axis=1)
    return found
