"""The order in which rows of a data set are trained on.

It is drawn once, for all epochs, so that a run that goes on after a kill takes exactly the rows that were left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def order(weights: Sequence[float], epochs: int, seed: int) -> list[int]:
    """Draw the places of the rows that are trained on, epoch after epoch.

    Rows of equal weight come once an epoch, in an order of its own. Else an epoch has as many rows as the data set, of
    which a row has its share by weight, by systematic resampling (Kitagawa 1996, J. Comput. Graph. Stat. 5:1): a row
    that is due 2.3 times comes two or three times, and over epochs 2.3 times.

    Weights choose rows, and do not scale their loss: that means the same for every algorithm, and for an engine that
    reads the rows from a file; and one row of a large weight does not make one step larger than the others.

    Args:
        weights: of each row, at least 0, and above 0 for one of them.
    """
    share = np.asarray(weights, dtype=float)
    count = len(share)
    taken: list[int] = []
    for epoch in range(epochs):
        source = np.random.default_rng((seed, epoch))
        rows = source.permutation(count)
        if share.min() != share.max():
            due = np.cumsum(share[rows])
            points = (np.arange(count) + source.random()) * (due[-1] / count)
            chosen = np.searchsorted(due, points, side="right").clip(max=count - 1)
            rows = source.permutation(rows[chosen])
        taken += rows.tolist()
    return taken
