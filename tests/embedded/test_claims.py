"""What the Trainer takes from the buffer, and gives back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from sqlite3 import connect
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection, Engine, event

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


def commit_sampled(store: ExperienceStore, *answers: tuple[str, str | None, int], algorithm: str = "grpo") -> None:
    """One commit of answers: msg_id, task and the version that sampled it."""
    for run_id, (msg_id, task_id, version) in enumerate(answers):
        store.record([Answer(msg_id, np.array([1]), np.array([2]), np.array([-1.0]), version)])
        store.feedback([msg_id], float(run_id), task_id, run_id)
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


@pytest.mark.parametrize("task", ["task", None])
def test_what_earlier_versions_sampled_is_discarded_with_its_group(store: ExperienceStore, task: str | None) -> None:
    commit_sampled(store, ("early", task, 2), ("its group", task, 3), ("another task", "other", 3))
    commit_sampled(store, ("another commit", task, 3))
    commit_sampled(store, ("alone", task, 2), ("beside it", task, 3), algorithm="ppo")

    assert store.discard_before(3) == 3
    assert store.discard_before(3) == 0
    assert claimed(store, 4, at_least=3) == ["another task", "another commit", "beside it"]


@pytest.mark.parametrize("task", ["task", None])
def test_what_later_versions_sampled_is_discarded_with_its_group(store: ExperienceStore, task: str | None) -> None:
    commit_sampled(store, ("its group", task, 2), ("late", task, 3), ("another task", "other", 2))
    commit_sampled(store, ("another commit", task, 2))
    commit_sampled(store, ("beside it", task, 2), ("alone", task, 3), algorithm="ppo")

    assert store.discard_after(2) == 3
    assert store.discard_after(2) == 0
    assert claimed(store, 3, at_least=3) == ["another task", "another commit", "beside it"]


def test_what_earlier_versions_sampled_is_never_taken_however_late_it_is_committed(store: ExperienceStore) -> None:
    commit_sampled(store, ("early", "t", 2), ("its group", "t", 3), ("later", "u", 3))

    assert [each.msg_id for each in store.claim(4, 1, sampled_since=3)] == ["later"]
    assert store.claim(5, 1, sampled_since=3) == []
    assert store.unclaimed() == 2


def test_a_trainer_that_waits_takes_no_lock(store: ExperienceStore, tmp_path: Path) -> None:
    commit(store, ["a0", "a1"])

    with closing(connect(tmp_path / "experiences.db")) as explorer:
        explorer.execute("BEGIN IMMEDIATE")
        assert (store.discard_before(0), store.claim(1, 3), store.unclaimed()) == (0, [], 2)


def test_no_row_is_looked_for_in_the_whole_buffer(store: ExperienceStore, tmp_path: Path) -> None:
    """It is asked twice a second for as long as a job has a version of a data set, and the buffer only grows."""
    database = tmp_path / "experiences.db"
    with closing(connect(database)) as connection:
        connection.execute("DROP INDEX ix_exp_buffer_group")  # as versions before had it
    asked: list[tuple[str, Any]] = []

    def note(_connection: Connection, _cursor: object, statement: str, values: Any, *_: object) -> None:
        if "train_step" in statement and statement.startswith(("SELECT", "UPDATE")):
            asked.append((statement, values))

    with closing(ExperienceStore(f"sqlite:///{database}", "exp_buffer")) as opened:
        commit_sampled(opened, ("early", "t", 2), ("later", "u", 3), ("latest", None, 3))
        event.listen(Engine, "before_cursor_execute", note)
        try:
            assert opened.discard_before(3) == 1
            assert claimed(opened, 4, at_least=1) == ["later"]
        finally:
            event.remove(Engine, "before_cursor_execute", note)
    with closing(connect(database)) as connection:
        plans = [
            step
            for statement, values in asked
            for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)
        ]
    assert any("ix_exp_buffer_group" in step for step in plans)
    assert [step for step in plans if "SCAN exp_buffer" in step] == []
