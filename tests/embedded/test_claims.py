"""What the Trainer takes from the buffer, and gives back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from slipstream.embedded.experiences import Answer, ExperienceStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ExperienceStore]:
    store = ExperienceStore(f"sqlite:///{tmp_path}/experiences.db", "exp_buffer")
    yield store
    store.close()


def commit(store: ExperienceStore, *groups: Sequence[str], algorithm: str = "grpo") -> None:
    """Each group is a task; its answers get rewards 0, 1, 2, ..."""
    for msg_ids in groups:
        for run_id, msg_id in enumerate(msg_ids):
            store.record([Answer(msg_id, np.array([1]), np.array([2]), np.array([-1.0]), 0)])
            store.feedback([msg_id], float(run_id), f"task-of-{msg_ids[0]}", run_id)
    store.commit("grpo" if algorithm == "grpo" else "ppo")


def claimed(store: ExperienceStore, step: int, at_least: int) -> list[str]:
    return [experience.msg_id for experience in store.claim(step, at_least)]


def test_whole_groups_are_taken_oldest_first(store: ExperienceStore) -> None:
    commit(store, ["a0", "a1", "a2"], ["b0", "b1"])
    commit(store, ["c0", "c1", "c2"])

    assert claimed(store, 1, at_least=4) == ["a0", "a1", "a2", "b0", "b1"]
    assert claimed(store, 2, at_least=1) == ["c0", "c1", "c2"]
    assert store.unclaimed() == 0


def test_nothing_is_taken_while_there_is_less_than_a_batch(store: ExperienceStore) -> None:
    commit(store, ["a0", "a1"])

    assert claimed(store, 1, at_least=3) == []
    assert store.unclaimed() == 2


def test_single_samples_make_batches_of_exactly_the_size(store: ExperienceStore) -> None:
    commit(store, ["a0", "a1", "a2"], ["b0", "b1"], algorithm="ppo")

    assert claimed(store, 1, at_least=2) == ["a0", "a1"]
    assert claimed(store, 2, at_least=2) == ["a2", "b0"]


def test_one_task_in_two_commits_is_two_groups(store: ExperienceStore) -> None:
    commit(store, ["a0", "a1"])
    store.record([Answer("a2", np.array([1]), np.array([2]), np.array([-1.0]), 0)])
    store.feedback(["a2"], 1.0, "task-of-a0", 2)
    store.commit("grpo")

    assert claimed(store, 1, at_least=1) == ["a0", "a1"]


def test_what_later_steps_took_is_given_back(store: ExperienceStore) -> None:
    commit(store, ["a0"], ["b0"], ["c0"])
    for step in (1, 2, 3):
        store.claim(step, 1)

    assert store.release_after(1) == 2
    assert claimed(store, 2, at_least=2) == ["b0", "c0"]


def test_what_was_set_aside_is_never_taken_again(store: ExperienceStore) -> None:
    commit(store, ["a0"], ["b0"])
    store.claim(1, 1)

    assert store.set_aside(1) == 1
    assert store.release_after(0) == 0
    assert claimed(store, 1, at_least=1) == ["b0"]


def test_whole_commits_are_taken_one_by_one(store: ExperienceStore) -> None:
    commit(store, ["a0", "a1", "a2"], ["b0", "b1"])
    commit(store, ["c0", "c1"])
    commit(store, ["d0"], ["d1"], algorithm="ppo")

    steps = [store.claim(step, 1, whole_commits=True) for step in (1, 2, 3, 4)]
    assert [[taken.msg_id for taken in step] for step in steps] == [
        ["a0", "a1", "a2", "b0", "b1"], ["c0", "c1"], ["d0", "d1"], [],
    ]  # fmt: skip
