"""Groups whose task goes on: their rewards wait for the end of its turn.

A score looks at a task's last answer, and a task that production is still at has none yet. So runs of such a task are
not scored, and what was scored before it went on is not delivered: `scoring_again.score_tasks_again` sends it back to
be scored at the end of the turn.
"""

from __future__ import annotations

from sqlalchemy import Exists, exists

from slipstream.store.states import TaskState
from slipstream.store.tables.capture import TaskRow
from slipstream.store.tables.runs import GroupRow


def task_goes_on() -> Exists:
    """Return the condition under which the task of the group of a select goes on. An open task is never decided, and
    its index has those alone."""
    return exists().where(TaskRow.id == GroupRow.task_id, TaskRow.state == TaskState.OPEN, TaskRow.decided.is_(False))
