"""A store filled with what a day leaves behind: made by SQLite itself, a hundred thousand calls a second."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from slipstream.store.bodies import pack

REQUEST = pack({"model": "prod", "messages": [{"role": "user", "content": "What does the parcel to Oslo cost?"}]})
ANSWER = pack({"id": "chatcmpl-0", "choices": [{"message": {"content": "The parcel costs 4.20."}}]})

_DAY = 86400.0
_CHUNK = 100_000
"""Tasks made by one statement: its progress is to be seen."""

_ID = "printf('%012x-7%03x-%012x', {begun} + i * {step}, i % 4096, (i * 2654435761) % 1099511627776)"
"""The id of the i-th task: 32 characters that rise with time, as those that the sidecar makes itself."""

_STATEMENTS = (
    # Two calls a task; four tasks a session, and a service that keeps one for ever.
    """INSERT INTO tasks (id, session_id, state, revision, marked, labels, meta, decided, selected, reason, created_at,
                          updated_at)
       SELECT {id}, CASE WHEN i % 4 = 0 THEN 'service' ELSE printf('s%024x', i / 4) END, 'complete', 2, 0, '[]',
              '{{}}', 1, i % :every = 0, CASE WHEN i % :every = 0 THEN 'sampling' ELSE 'not_sampled' END, {at}, {at}
       FROM n""",
    """INSERT INTO calls (id, task_id, position, msg_id, request, answer, latency, started_at)
       SELECT 2 * i + p + 1, {id}, p, 'chatcmpl-' || lower(hex(randomblob(16))), :request, :answer, 0.5, {at}
       FROM n, (SELECT 0 AS p UNION ALL SELECT 1) ORDER BY i, p""",
    """INSERT INTO groups (id, task_id, call_id, generation, state, commit_id, updated_at)
       SELECT {id} || '.' || p, {id}, 2 * i + p + 1, 0,
              CASE WHEN i % (50 * :every) = 0 THEN 'dropped' ELSE 'delivered' END, 1 + i / 5000, {at}
       FROM n, (SELECT 0 AS p UNION ALL SELECT 1) WHERE i % :every = 0""",
    """INSERT INTO runs (group_id, run_id, state, attempts, revision, due_at, msg_id, request, answer, latency,
                         policy_version, reward, breakdown, reason, updated_at)
       SELECT {id} || '.' || p, r, CASE WHEN i % (31 * :every) = 0 THEN 'failed' ELSE 'scored' END, 0, 1, {at},
              'chatcmpl-' || lower(hex(randomblob(16))), :request, :answer, 0.5, i / 50000, 0.5, '{{}}', NULL, {at}
       FROM n, (SELECT 0 AS p UNION ALL SELECT 1), (SELECT 0 AS r UNION ALL SELECT 1 UNION ALL SELECT 2)
       WHERE i % :every = 0""",
    """INSERT INTO feedback (id, reward, created_at) SELECT 'f' || i, 1.0, {at} FROM n WHERE i % :every = 0""",
    """INSERT INTO feedback_targets (feedback_id, kind, ref, state, matched_to, call_pk)
       SELECT 'f' || i, 'task_id', {id}, 'matched', 'production', 2 * i + 2 FROM n WHERE i % :every = 0""",
    """INSERT INTO marks (id, task_id, labels, meta, state, created_at, expires_at)
       SELECT 'm' || i, {id}, '[]', '{{}}', 'applied', {at}, {at} + 60 FROM n WHERE i % 1000 = 0""",
    """INSERT INTO facade_groups (id, task_id, state, commit_id, attempts, updated_at)
       SELECT 'g' || i, 'g' || i, CASE WHEN i % (90 * :every) = 0 THEN 'lost' ELSE 'delivered' END, 1 + i / 5000,
              1, {at} FROM n WHERE i % :every = 0""",
    """INSERT INTO facade_answers (msg_id, choices, policy_version, group_id, run_id, reward, created_at)
       SELECT 'chatcmpl-' || lower(hex(randomblob(16))), 1, 0, 'g' || i, r, 0.5, {at}
       FROM n, (SELECT 0 AS r UNION ALL SELECT 1) WHERE i % :every = 0""",
)
_COMMITS = """
    INSERT INTO commits (state, trigger, groups, experiences, explorer_ready, explorer_total, explorer_step, delivered,
                         started_at, ended_at)
    SELECT CASE WHEN i % 100 = 7 THEN 'lost' ELSE 'delivered' END, 'interval', 100, 300, 0, 0, i,
           300 * (i + 1), {at}, {at} FROM n"""
_VERSIONS = """
    INSERT INTO versions (version, seen_at, last_commit_id, experiences)
    SELECT i, {at}, i * 10 + 1, i * 3000 FROM n"""


def fill(path: Path, calls: int, *, every: int = 100, say: Callable[[int], object] = lambda made: None) -> None:
    """Put so many calls of the last day, decided and delivered, into an empty store of the newest schema.

    Args:
        every: of so many tasks one was selected, its two calls with three runs each, and has feedback.
        say: told how many calls there are, now and then.
    """
    connection = sqlite3.connect(path)
    for pragma in ("journal_mode=OFF", "synchronous=OFF", "cache_size=-2000000", "foreign_keys=OFF"):
        connection.execute(f"PRAGMA {pragma}")
    begun, amount = time.time() - _DAY, calls // 2
    name = _ID.format(begun=int(begun * 1000), step=f"{_DAY * 1000 / amount:.6f}")
    numbers = "WITH RECURSIVE n(i) AS (SELECT :first UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :end)"

    def execute(statement: str, first: int, end: int, of: int) -> None:
        into, _, chosen = statement.format(id=name, at=f"({begun} + i * {_DAY} / {of})").partition("SELECT")
        given = {"first": first, "end": end, "every": every, "request": REQUEST, "answer": ANSWER}
        connection.execute(f"{into} {numbers} SELECT {chosen}", given)

    for statement, many in ((_COMMITS, amount // 5000 + 1), (_VERSIONS, amount // 50000 + 1)):
        execute(statement, 0, many, many)
    for first in range(0, amount, _CHUNK):
        for statement in _STATEMENTS:
            execute(statement, first, min(first + _CHUNK, amount), amount)
        connection.commit()
        say(2 * min(first + _CHUNK, amount))
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
