"""The end of what was under way in a store that was put back to an earlier state, before a sidecar goes on with it.

The Explorer is not put back with it. It can have been told, and have trained on, whatever was undelivered then. It
forgets no answer that was rewarded, so a reward that it is told once more has no effect, and shows in its counters: the
group is run again. That leaves these:

- A delivery that was under way: the Explorer may have been asked to commit, so that a repair of its history would have
  groups trained on twice.
- A group with answers of then and runs that are still to come: the new ones alone would be trained on. It is run again
  as a whole, or, where a client of the facade runs it, goes out as it is.
- Groups of clients: as of deliveries, their answers are never made new again in the Explorer's history.
- Sidecars of then: none of them runs.
- Sessions with the page: one that was signed out since would be open again.
- A rollout, an experiment, and a share of the users: a kill may have come since, and what the lane serves by now is
  not known.
"""

from __future__ import annotations

import math

from sqlalchemy import exists, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from slipstream.store import (
    audit,
    commits,
    experiments,
    facade,
    page_sessions,
    planning,
    ready_groups,
    rollouts,
    serving,
    sidecars,
    webhook,
)
from slipstream.store.audit import Action, Author, Write
from slipstream.store.replays import KIND
from slipstream.store.states import RUNS_UNDER_WAY, GroupState, RunState, move
from slipstream.store.tables.runs import GroupRow, RunRow

_REASON = "the store was restored from a backup"


async def settle(session: AsyncSession, group_size: int, now: float) -> None:
    """End what was under way in a store that was restored.

    Args:
        group_size: as `facade.group_size`.
        now: Unix seconds.
    """
    await sidecars.end_all(session, now)
    await page_sessions.end_all(session)
    await rollouts.end_all(session, now)
    await experiments.end_all(session, now)
    if (await serving.current(session)).share > 0:
        none = await serving.serve(session, None, 0.0, None, now)
        await audit.note(session, Write(Action.SERVING_SHARE, str(none.epoch)), Author(None, None), now)
    await commits.assume_asked(session)
    for group in await _half_answered(session):
        await _run_again(session, group, now)
    await facade.end_waiting(session, math.inf, group_size, now)
    await ready_groups.never_repair(session)


async def _half_answered(session: AsyncSession) -> list[GroupRow]:
    """The sidecar's groups of which some runs are answered, and others are still to be sent."""
    answered, waiting = aliased(RunRow), aliased(RunRow)
    query = select(GroupRow).where(GroupRow.state == GroupState.RUNNING, GroupRow.by_client.is_(False))
    query = query.where(exists().where(answered.group_id == GroupRow.id, answered.msg_id.is_not(None)))
    to_come = (RunState.PENDING, RunState.RUNNING, RunState.OPEN)
    query = query.where(exists().where(waiting.group_id == GroupRow.id, waiting.state.in_(to_come)))
    return list(await session.scalars(query))


async def _run_again(session: AsyncSession, group: GroupRow, now: float) -> None:
    for state in RUNS_UNDER_WAY:
        ended = update(RunRow).where(RunRow.group_id == group.id, RunRow.state == state)
        ended = ended.values(state=move(state, RunState.FAILED), reason=_REASON, owner=None, updated_at=now)
        await session.execute(ended.execution_options(synchronize_session=False))
    group.state, group.updated_at = move(group.state, GroupState.RERUN), now
    await (webhook if group.kind == KIND else planning).plan_again(session, group, now)
