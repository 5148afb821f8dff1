"""Parts of the training rows, chosen by the policy's losses and embeddings."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.datasets.config import Coreset

np = pytest.importorskip("numpy")  # comes with the extra `embedded`

from slipstream.datasets.coreset import RowScores, choose, compared, farthest, size_of  # noqa: E402


def scores(losses: Any, embeddings: Any) -> RowScores:
    return RowScores(np.array(losses, dtype=np.float32), np.array(embeddings, dtype=np.float32))


def at_angles(*degrees: float) -> Any:
    radians = np.radians(np.array(degrees))
    return np.stack([np.cos(radians), np.sin(radians)], axis=1)


def test_the_highest_losses_are_chosen_but_not_those_of_wrong_answers() -> None:
    found = scores([9, 1, 8, 2, 7, 3], np.ones((6, 2)))
    rewards = [0.0, 1.0, 1.0, 1.0, 0.2, None]

    assert choose(Coreset(strategy="loss_topk", size=2), rewards, found).tolist() == [2, 3]
    assert choose(Coreset(strategy="loss_topk", size=2), [None] * 6, found).tolist() == [0, 2]


def test_a_loss_choice_that_finds_too_few_right_answers_is_filled_up() -> None:
    found = scores([9, 1, 8], np.eye(3))
    assert len(choose(Coreset(strategy="loss_topk", size=2), [0.0, 0.0, 1.0], found)) == 2


def test_the_most_different_rows_are_chosen() -> None:
    directions = at_angles(0, 1, 2, 3, 90, 91, 180, 270)
    found = choose(Coreset(strategy="diversity", size=4), [1.0] * 8, scores(np.zeros(8), directions * 5))

    assert {round(angle / 90) for angle in np.array([0, 1, 2, 3, 90, 91, 180, 270])[found]} == {0, 1, 2, 3}


def test_hybrid_takes_half_by_loss_and_half_by_difference_from_these() -> None:
    directions = at_angles(0, 1, 2, 3, 90, 180)
    found = choose(Coreset(strategy="hybrid", size=4), [1.0] * 6, scores([9, 8, 1, 2, 3, 4], directions))

    assert found.tolist() == [0, 1, 4, 5]


def test_rows_that_are_all_alike_are_each_chosen_once() -> None:
    assert sorted(farthest(np.ones((5, 3), dtype=np.float32), 5).tolist()) == [0, 1, 2, 3, 4]


def test_a_random_choice_needs_no_scores_and_is_the_same_again() -> None:
    coreset = Coreset(strategy="random", share=0.5, seed=3)
    found = choose(coreset, [None] * 10)

    assert len(set(found.tolist())) == 5
    assert found.tolist() == choose(coreset, [None] * 10).tolist()
    assert found.tolist() != choose(coreset.model_copy(update={"seed": 4}), [None] * 10).tolist()


@pytest.mark.parametrize(
    ("coreset", "rows", "size"),
    [({"size": 8}, 5, 5), ({"size": 8}, 9, 8), ({"share": 0.01}, 9, 1), ({"share": 0.5}, 9, 4), ({"share": 0.5}, 0, 0)],
)
def test_the_size_is_never_more_than_there_is(coreset: dict[str, Any], rows: int, size: int) -> None:
    assert size_of(Coreset(**coreset), rows) == size


def test_a_choice_is_measured_beside_a_random_one() -> None:
    drawn = np.random.default_rng(0)
    found = RowScores(drawn.random(400, dtype=np.float32), drawn.standard_normal((400, 8), dtype=np.float32))
    coreset = Coreset(strategy="diversity", size=40)
    report = compared(coreset, choose(coreset, [1.0] * 400, found), found)

    assert report["chosen"]["rows"] == report["random"]["rows"] == 40
    assert report["chosen"]["largest_distance"] < report["random"]["largest_distance"]


@pytest.mark.parametrize(
    ("losses", "embeddings", "said"),
    [
        ([1.0], [[1.0], [2.0]], "shapes"),
        ([1.0, float("nan")], [[1.0], [2.0]], "losses: .* row 1"),
        ([1.0, 2.0], [[1.0], [float("inf")]], "embeddings: .* row 1"),
    ],
)
def test_scores_that_cannot_be_used_are_refused(losses: Any, embeddings: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        scores(losses, embeddings)


def test_scores_of_other_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="those of 3 rows, found 0"):
        choose(Coreset(size=2), [None] * 3)
