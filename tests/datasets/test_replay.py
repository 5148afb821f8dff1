"""Rows of earlier data sets among those of a new one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from slipstream.datasets.config import Coreset, Dataset, Replay
from slipstream.datasets.replay import Reservoir, mixed, with_replay
from slipstream.datasets.row import Kind, Provenance, Row, Source
from slipstream.datasets.selection import selected


def row(text: str, session: str = "s", kind: Kind = Kind.SFT) -> Row:
    origin = Provenance(task=text, session=session, tenant="default", source=Source.PRODUCTION)
    return Row(kind, [{"role": "user", "content": text}], {"role": "assistant", "content": "yes"}, origin)


def test_each_item_is_kept_as_often_as_any_other() -> None:
    kept: Counter[int] = Counter()
    for seed in range(2000):
        reservoir: Reservoir[int] = Reservoir(5, seed)
        for item in range(20):
            reservoir.add(item)
        kept.update(reservoir.items)

    assert reservoir.seen == 20
    assert all(400 < kept[item] < 600 for item in range(20))  # 500 each, with a standard deviation of 19


def test_the_ratio_is_of_all_rows() -> None:
    found = mixed(range(70), range(100, 200), 0.3)
    assert len(found) == len(set(found)) == 100
    assert sum(item >= 100 for item in found) == 30
    assert found != sorted(found)
    assert found == mixed(range(70), range(100, 200), 0.3)


def test_few_kept_items_are_not_repeated() -> None:
    assert sorted(mixed(range(70), [100, 101], 0.5)) == [*range(70), 100, 101]


def test_earlier_rows_are_mixed_in_but_for_those_that_would_falsify() -> None:
    new = [row("new"), row("both")]
    earlier = [row("both"), row("old"), row("old"), row("kept back", "held"), row("pair", kind=Kind.PREFERENCE)]
    found = with_replay(new, earlier, Replay(datasets=("before",), ratio=0.5), held_out=["held"])

    assert sorted(each.prompt[0]["content"] for each in found) == ["both", "new", "old"]


@pytest.mark.parametrize("ratio", [0.1, 0.9])
def test_without_new_rows_nothing_is_trained(ratio: float) -> None:
    assert with_replay([], [row("old")], Replay(datasets=("before",), ratio=ratio)) == []


def test_a_coreset_is_chosen_and_earlier_rows_mixed_in() -> None:
    np = pytest.importorskip("numpy")
    from slipstream.datasets.coreset import RowScores

    scored: list[int] = []

    def score(rows: Sequence[Row]) -> RowScores:
        scored.append(len(rows))
        return RowScores(np.arange(len(rows), dtype=np.float32), np.eye(len(rows), dtype=np.float32))

    fields = {"name": "now", "sources": [{"policy": {}}], "replay": {"datasets": ["a", "b"], "ratio": 0.5}}
    dataset = Dataset.model_validate({**fields, "coreset": {"strategy": "loss_topk", "size": 2}})
    rows = [row(f"new {number}") for number in range(5)]
    found = selected(dataset, rows, lambda name: [row(f"old {name}")], score)

    assert sorted(each.prompt[0]["content"] for each in found.rows) == ["new 3", "new 4", "old a", "old b"]
    assert scored == [5]
    assert found.report["replayed"] == 2
    assert found.report["coreset"]["chosen"]["mean_loss"] == 3.5
    drawn = dataset.model_copy(update={"coreset": Coreset(strategy="random", size=2), "replay": None})
    assert len(selected(drawn, rows, lambda name: [], score).rows) == 2
    assert scored == [5], "a random choice needs no forward pass"
