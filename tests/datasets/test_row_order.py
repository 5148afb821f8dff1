from __future__ import annotations

from collections import Counter

from slipstream.datasets.row_order import order


def test_equal_rows_come_once_an_epoch_each_time_in_another_order() -> None:
    taken = order([1.0] * 50, epochs=3, seed=7)

    epochs = [taken[start : start + 50] for start in (0, 50, 100)]
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert taken == order([1.0] * 50, epochs=3, seed=7), "the same after a kill"
    assert taken != order([1.0] * 50, epochs=3, seed=8)


def test_rows_have_their_share_by_weight() -> None:
    weights = [3.0] * 10 + [1.0] * 30 + [0.5] * 20  # 70 in all, for 60 rows

    taken = order(weights, epochs=40, seed=0)

    count = Counter(taken)
    assert len(taken) == 40 * 60
    for row, weight in enumerate(weights):
        due = 40 * 60 * weight / 70
        assert abs(count[row] - due) < 0.35 * due
    one = Counter(order(weights, epochs=1, seed=0))
    assert all(one[row] in (2, 3) for row in range(10)), "due 2.6 times"
