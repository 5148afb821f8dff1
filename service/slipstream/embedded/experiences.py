"""Experiences in SQL: what the Explorer records of each policy answer, and the buffer that the Trainer reads.

Both tables live in one database, so that a commit moves experiences in one transaction. An answer goes through
three states, each reached once:

    recorded ──feedback──▶ ready ──commit──▶ committed (a row in the buffer) ──claim──▶ taken by a training step

A rollback marks answers in each of these states as discarded: no training step takes them.
Nothing of this is kept in memory: what was fed back and not committed is still ready after a restart, and the counts
go on where they were.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, bindparam, exists, func, insert, not_, select, update

from slipstream.embedded.advantages import advantages
from slipstream.embedded.algorithm import OnlineAlgorithm
from slipstream.embedded.tables import READS_ONLY, open_tables

TokenIds = NDArray[np.int32]
Logprobs = NDArray[np.float32]

_CARRIED = (  # from a recorded answer to its row in the buffer
    "msg_id",
    "task_id",
    "run_id",
    "reward",
    "prompt_ids",
    "response_ids",
    "logprobs",
    "model_version",
    "created_at",
)
DISCARDED = -2  # the train_step of experiences that a rollback took out, the commit_id of answers until their commit
SET_ASIDE = -1  # the train_step of experiences whose training failed again and again


@dataclass(frozen=True)
class Answer:
    """One choice of a policy completion as it was sampled.

    `logprobs[i]` is the natural log of the probability of `response_ids[i]` under softmax(logits / temperature).
    """

    msg_id: str
    prompt_ids: TokenIds
    response_ids: TokenIds
    logprobs: Logprobs
    model_version: int


@dataclass(frozen=True)
class Experience:
    """A committed row. `advantage` is None where the algorithm leaves it to the Trainer."""

    id: int
    msg_id: str
    task_id: str | None
    run_id: int
    reward: float
    advantage: float | None
    prompt_ids: TokenIds
    response_ids: TokenIds
    logprobs: Logprobs
    model_version: int


@dataclass(frozen=True)
class Counts:
    """Totals since the beginning, which never fall: answers recorded, answers rewarded, and commits."""

    recorded: int
    ready: int
    commits: int


class ExperienceStore:
    """Safe to use from several threads, and from the Explorer's and the Trainer's process at the same time.

    Args:
        url: a synchronous SQLAlchemy URL; the folder of an SQLite file is made.
        buffer_name: the name of the buffer's table.
        clock: seconds since the epoch.

    Raises:
        ConfigError: the database cannot be opened by this process, or holds a table of this name with other columns.
    """

    def __init__(self, url: str, buffer_name: str, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        tables = open_tables(url, buffer_name)
        self._engine = tables.engine
        self._reader = tables.engine.execution_options(**{READS_ONLY: True})
        self._answers, self._commits, self._buffer = tables.answers, tables.commits, tables.buffer

    def close(self) -> None:
        self._engine.dispose()

    def record(self, answers: Iterable[Answer]) -> None:
        """Keeps the answers; those of one completion (n > 1) share its msg_id."""
        now = self._clock()
        rows = [
            {
                "msg_id": answer.msg_id,
                "prompt_ids": answer.prompt_ids.astype(np.int32).tobytes(),
                "response_ids": answer.response_ids.astype(np.int32).tobytes(),
                "logprobs": answer.logprobs.astype(np.float32).tobytes(),
                "model_version": answer.model_version,
                "created_at": now,
            }
            for answer in answers
        ]
        with self._engine.begin() as connection:
            connection.execute(insert(self._answers), rows)

    def feedback(self, msg_ids: Sequence[str], reward: float, task_id: str | None, run_id: int) -> int:
        """Gives the reward to answers that have none yet: the first reward for a msg_id wins.

        The order of `msg_ids` is that of the run's steps. Returns how many answers it reached; unknown and already
        rewarded ids count as none.
        """
        answers = self._answers
        given = update(answers).where(answers.c.msg_id == bindparam("given"), answers.c.reward.is_(None))
        given = given.values(reward=reward, task_id=task_id, run_id=run_id, step=bindparam("place"))
        reached = 0
        with self._engine.begin() as connection:
            for place, msg_id in enumerate(msg_ids):
                reached += connection.execute(given, {"given": msg_id, "place": place}).rowcount
        return reached

    def commit(self, algorithm: OnlineAlgorithm) -> int:
        """Moves every ready answer into the buffer, with its advantage; returns how many. A commit of none counts.

        Answers that a rollback discarded stay out, and where answers are compared with each other all of their group.
        """
        answers = self._answers
        with self._engine.begin() as connection:
            ready = connection.execute(
                select(answers)
                .where(
                    answers.c.reward.is_not(None),
                    answers.c.commit_id.is_(None) | (answers.c.commit_id == DISCARDED),
                )
                .order_by(answers.c.step, answers.c.id)
                .with_for_update()  # PostgreSQL: another commit at the same time finds them committed
            ).all()
            compared = advantages(algorithm, [(row.task_id, row.run_id, row.reward) for row in ready])
            groups = [row.task_id if compared else row.id for row in ready]  # of those that are compared, else of one
            discarded = {group for group, row in zip(groups, ready, strict=True) if row.commit_id == DISCARDED}
            experiences = [
                {name: row._mapping[name] for name in _CARRIED} | {"advantage": compared[index] if compared else None}
                for index, row in enumerate(ready)
                if groups[index] not in discarded
            ]
            commit = connection.execute(
                insert(self._commits).values(created_at=self._clock(), experiences=len(experiences))
            ).inserted_primary_key
            assert commit is not None  # one row was inserted; the type allows for many
            if experiences:
                connection.execute(insert(self._buffer), [row | {"commit_id": commit.id} for row in experiences])
            if ready:
                # these and no others: between two statements PostgreSQL lets in what was rewarded meanwhile
                committed = update(answers).where(answers.c.id == bindparam("ready")).values(commit_id=commit.id)
                connection.execute(committed, [{"ready": row.id} for row in ready])
        return len(experiences)

    def counts(self) -> Counts:
        answers = self._answers
        with self._reader.begin() as connection:
            return Counts(
                recorded=connection.scalar(select(func.count()).select_from(answers)) or 0,
                ready=connection.scalar(select(func.count()).where(answers.c.reward.is_not(None))) or 0,
                commits=connection.scalar(select(func.count()).select_from(self._commits)) or 0,
            )

    def unclaimed(self) -> int:
        """Return how many committed experiences no training step has taken."""
        with self._reader.begin() as connection:
            return connection.scalar(select(func.count()).where(self._buffer.c.train_step.is_(None))) or 0

    def claim(
        self, step: int, at_least: int, *, whole_commits: bool = False, sampled_since: int = 0
    ) -> list[Experience]:
        """Takes the batch of a training step: whole groups, oldest first, until there are `at_least` experiences.

        A group is what the advantages were computed within (the experiences of one task in one commit); an
        experience without an advantage stands alone, so that a batch of those has exactly `at_least`. With
        `whole_commits` all that one commit brought stays together. What `discard_before(sampled_since)` would mark is
        never taken, whenever it was committed. Returns an empty list, and takes nothing, while there are fewer.
        """
        if self.unclaimed() < at_least:
            return []  # a Trainer that waits asks twice a second, and takes no lock from the Explorer
        buffer = self._buffer
        with self._engine.begin() as connection:
            free = connection.execute(
                select(buffer.c.id, buffer.c.commit_id, buffer.c.task_id, buffer.c.advantage)
                .where(buffer.c.train_step.is_(None), not_(self._sampled_before(sampled_since)))
                .order_by(buffer.c.id)
            )
            groups: defaultdict[Any, list[int]] = defaultdict(list)
            for row in free:
                alone_or_group = row.id if row.advantage is None else (row.commit_id, row.task_id)
                groups[row.commit_id if whole_commits else alone_or_group].append(row.id)
            batch: list[int] = []
            for ids in groups.values():
                if len(batch) >= at_least:
                    break
                batch += ids
            if len(batch) < at_least:
                return []
            connection.execute(update(buffer).where(buffer.c.id.in_(batch)).values(train_step=step))
            taken = select(buffer).where(buffer.c.train_step == step).order_by(buffer.c.commit_id, buffer.c.id)
            return [_experience(row) for row in connection.execute(taken)]

    def release_after(self, step: int) -> int:
        """Gives back what later steps took: their training is in no published weights. Returns how many."""
        return self._retake(self._buffer.c.train_step > step, None)

    def set_aside(self, step: int) -> int:
        """Marks what a step took as failed, never to be taken again. Returns how many."""
        return self._retake(self._buffer.c.train_step == step, SET_ASIDE)

    def discard_after(self, step: int) -> int:
        """Marks what later steps took, and what later versions sampled and no step has taken, never to be taken again.

        A group with such an answer is marked whole, as by `discard_before`. Of answers that wait for their feedback or
        commit, those of later versions are marked: their number may come a second time, so a commit could not tell
        them apart. Returns how many, without answers that no feedback has reached.
        """
        answers, taken = self._answers.c, self._buffer.c.train_step
        late = update(self._answers).where(answers.model_version > step, answers.commit_id.is_(None))
        late = late.values(commit_id=DISCARDED)
        with self._engine.begin() as connection:
            ready = connection.execute(late.where(answers.reward.is_not(None))).rowcount
            connection.execute(late)
        return ready + self._retake((taken > step) | (taken.is_(None) & self._sampled_after(step)), DISCARDED)

    def discard_before(self, version: int) -> int:
        """Marks what versions before this one sampled and no step has taken, never to be taken. Returns how many.

        A group with such an answer is marked whole: its advantages were computed with that answer.
        """
        late = self._buffer.c.train_step.is_(None) & self._sampled_before(version)
        with self._reader.begin() as connection:
            if not connection.scalar(select(exists().where(late))):
                return 0
        return self._retake(late, DISCARDED)

    def _sampled_before(self, version: int) -> ColumnElement[bool]:
        """The condition that a row, or with an advantage any of its group, was sampled before this version."""
        return self._in_group(lambda row: row.model_version < version)

    def _sampled_after(self, version: int) -> ColumnElement[bool]:
        """The condition that a row, or with an advantage any of its group, was sampled after this version."""
        return self._in_group(lambda row: row.model_version > version)

    def _in_group(self, fits: Callable[[Any], ColumnElement[bool]]) -> ColumnElement[bool]:
        """The condition that a row, or with an advantage any of its group, has columns that fit."""
        row, other = self._buffer.c, self._buffer.alias().c
        in_one_group = (other.commit_id == row.commit_id) & other.task_id.is_not_distinct_from(row.task_id)
        return fits(row) | row.advantage.is_not(None) & exists().where(in_one_group, fits(other))

    def _retake(self, condition: ColumnElement[bool], train_step: int | None) -> int:
        with self._engine.begin() as connection:
            return connection.execute(update(self._buffer).where(condition).values(train_step=train_step)).rowcount


def _experience(row: Any) -> Experience:
    return Experience(
        id=row.id,
        msg_id=row.msg_id,
        task_id=row.task_id,
        run_id=row.run_id,
        reward=row.reward,
        advantage=row.advantage,
        prompt_ids=np.frombuffer(row.prompt_ids, np.int32),
        response_ids=np.frombuffer(row.response_ids, np.int32),
        logprobs=np.frombuffer(row.logprobs, np.float32),
        model_version=row.model_version,
    )
