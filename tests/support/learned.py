"""A store with versions, and the groups of runs that each of them answered."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Sequence
from typing import Any

from scripted import completion
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.bodies import pack
from slipstream.store.database import Database
from slipstream.store.states import CommitState, GroupState, RunState
from slipstream.store.tables.capture import TaskRow
from slipstream.store.tables.commits import CommitRow
from slipstream.store.tables.runs import GroupRow, RunRow
from slipstream.store.tables.versions import VersionRow
from slipstream.tenants import DEFAULT, qualified

NOW = time.time() - 3600  # within any retention

_numbers = itertools.count()


async def came(
    session: AsyncSession, version: int, after_commit: int, rewards: Sequence[float] = (), **row: Any
) -> None:
    """Have a version come after a commit, with the rewards of its delivered runs."""
    session.add(
        VersionRow(
            version=version, last_commit_id=after_commit, found_at=NOW + version, reward_count=len(rewards),
            reward_sum=sum(rewards), reward_squares=sum(each * each for each in rewards), **row,
        )
    )  # fmt: skip
    await session.flush()


async def committed(session: AsyncSession, *numbers: int) -> None:
    """Have commits of these numbers delivered."""
    for number in numbers:
        counters = {"explorer_ready": 0, "explorer_total": 0, "explorer_step": 0}
        session.add(
            CommitRow(
                id=number,
                state=CommitState.DELIVERED,
                trigger="hand",
                groups=1,
                experiences=2,
                started_at=NOW,
                **counters,
            )
        )
    await session.flush()


async def answered(
    session: AsyncSession,
    version: int,
    task: str,
    rewards: Sequence[float],
    commit: int | None = None,
    labels: Sequence[str] = (),
    tenant: str = DEFAULT,
    tokens: int = 7,
) -> None:
    """Have a version answer a group of runs of a task; one that no commit delivered is still running."""
    ref = qualified(tenant, task)
    if await session.get(TaskRow, ref) is None:
        session.add(
            TaskRow(
                id=ref, session_id=ref, tenant=tenant, labels=list(labels), decided=True, created_at=NOW, updated_at=NOW
            )
        )
        await session.flush()
    group = f"g-{next(_numbers)}"
    state = GroupState.RUNNING if commit is None else GroupState.DELIVERED
    session.add(GroupRow(id=group, task_id=ref, state=state, commit_id=commit, updated_at=NOW))
    await session.flush()
    for number, reward in enumerate(rewards):
        answer = completion(f"{group}-{number}", "well")
        answer["usage"] = {
            "prompt_tokens": 5,
            "completion_tokens": tokens + number,
            "total_tokens": 5 + tokens + number,
        }
        session.add(
            RunRow(
                group_id=group, run_id=number, state=RunState.SCORED, policy_version=version, reward=reward,
                latency=0.5, answer=pack(answer), updated_at=NOW,
            )
        )  # fmt: skip
    await session.flush()


async def learning_past(database: Database, versions: int) -> None:
    """Have each version up to one, which the store has, answer tasks between its commits, better from one to the next.

    Two tasks, `parcel` and `size`, are answered by all of them.
    """
    draw = random.Random(3)
    async with database.write() as session:
        await committed(session, *range(1, 2 * versions + 2))
        for version in range(versions + 1):
            own = update(VersionRow).where(VersionRow.version == version)
            await session.execute(own.values(last_commit_id=2 * version))
            for number in range(6):
                task = ("parcel", "size")[number] if number < 2 else f"past-{version}-{number}"
                skill = 0.3 + 0.07 * version - (0.05 * version if task == "size" else 0)
                rewards = [min(1.0, max(0.0, round(draw.gauss(skill, 0.15), 2))) for _ in range(3)]
                labels = ["shop"] if number % 2 else ["maths"]
                await answered(session, version, task, rewards, 2 * version + 1, labels, tokens=30 + 2 * version)
