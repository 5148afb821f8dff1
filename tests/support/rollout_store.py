"""A store with a rollout, its units and their calls, and the stage that decides about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contexts import context
from prometheus_client import CollectorRegistry

from slipstream.errors import SlipstreamError
from slipstream.isolation import Isolation
from slipstream.metrics import Metrics
from slipstream.rollouts.commands import open_rollout
from slipstream.rollouts.decider import LaneSight
from slipstream.rollouts.plan import Plan
from slipstream.rollouts.stage import Rollouts
from slipstream.runs.budget import Budget
from slipstream.store import feedback, rollouts, serving
from slipstream.store.audit import Author, Wanted, page
from slipstream.store.bodies import pack
from slipstream.store.database import Database
from slipstream.store.feedback import NewFeedback
from slipstream.store.rollouts import Rollout
from slipstream.store.tables.capture import CallRow, TaskRow
from slipstream.store.tables.serving import UnitRow
from slipstream.store.tables.versions import VersionRow
from slipstream.tenants import DEFAULT, qualified

NOW = 1_000_000.0
OPERATOR = Author("operator", None)
VERSION = 8

SERVING = {"mode": "on", "lane": {"base_url": "http://127.0.0.1:8020/v1"}}
"""The section `serving` with a lane that nothing asks."""


class HeldLane:
    """A lane that puts versions where it is told to.

    Attributes:
        placed: the versions that were put into it.
        problem: why it takes none; None if it does.
        sight: of it at each look.
    """

    def __init__(self) -> None:
        self.placed: list[int] = []
        self.problem: str | None = None
        self.sight = LaneSight()

    async def place(self, version: int) -> int | None:
        if self.problem is not None:
            raise SlipstreamError(self.problem)
        self.placed.append(version)
        return 100 + len(self.placed)

    def seen(self, rollout: Rollout, served: serving.Serving) -> LaneSight:
        return self.sight


class Decided:
    """The stage over a store.

    Attributes:
        now: Unix seconds of its clock.
    """

    def __init__(self, database: Database, **sections: Any) -> None:
        self.database = database
        self.now = NOW
        self.metrics = Metrics(CollectorRegistry())
        self.lane = HeldLane()
        given = {"serving": SERVING, **sections}
        self.context, self.stages = context(database, self.metrics, lambda: self.now, **given)
        self.isolation = Isolation()
        limit = self.context.settings.rewards.judge_calls_per_hour
        judging = Budget(database, self.metrics, "judge", requests=limit, clock=lambda: self.now)
        self.stage = Rollouts(self.context, self.lane, self.isolation, judging)
        self._calls = 0

    async def start(self) -> None:
        """Register with the store, and have a version in it."""
        await self.context.membership.start()
        async with self.database.write() as session:
            if await session.get(VersionRow, VERSION) is None:
                session.add(VersionRow(version=VERSION, seen_at=NOW))

    async def close(self) -> None:
        """End the processes of its calculators."""
        await self.stage.aclose()
        self.isolation.close()

    async def open(self, **plan: Any) -> Rollout:
        """Open a rollout whose steps take no time, and whose units are final after a minute."""
        fields = {"min_time": 0, "min_units": 5, "grace": 60, "steps": [0.5, 0.95], **plan}
        return await open_rollout(
            self.context, self.stage, VERSION, Plan.model_validate(fields), OPERATOR, replace=False
        )

    async def assign(self, unit: str, treated: bool, **fields: Any) -> None:
        """Have a unit assigned, one second after the last, as the Recorder writes it."""
        async with self.database.write() as session:
            session.add(self.unit_row(unit, treated, **fields))

    def unit_row(self, unit: str, treated: bool, **fields: Any) -> UnitRow:
        """A unit that is assigned one second after the last."""
        self.now += 1
        row = {"failures": 0, "fallbacks": 0, "slowest": 0.2, "epoch": 1, "calls": 1, "last_at": self.now, **fields}
        arm = "treatment" if treated else "control"
        return UnitRow(version=VERSION, unit=unit, arm=arm, first_at=self.now, **row)

    async def call(self, unit: str, treated: bool, text: str = "well", **fields: Any) -> str:
        """Have a unit make a call; returns the id of its answer."""
        name, task, made = self.call_rows(unit, treated, text, **fields)
        async with self.database.write() as session:
            session.add(task)
            await session.flush()
            session.add(made)
        return name

    def call_rows(self, unit: str, treated: bool, text: str = "well", **fields: Any) -> tuple[str, TaskRow, CallRow]:
        """A call of a unit: the id of its answer, its task, and itself."""
        self._calls += 1
        name = f"{unit}-{self._calls}"
        task_id = qualified(DEFAULT, name)
        row: dict[str, Any] = {
            "variant": f"version:{VERSION}" if treated else "production",
            "arm": "treatment" if treated else "control",
            "started_at": self.now,
            **fields,
        }
        answer = {"id": name, "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}
        request = {"model": "prod", "messages": [{"role": "user", "content": "hello"}]}
        task = TaskRow(
            id=task_id, session_id=task_id, decided=True, created_at=self.now, updated_at=self.now,
            meta={"reference": "well"},
        )  # fmt: skip
        call = CallRow(
            task_id=task_id, position=0, msg_id=task_id, request=pack(request), answer=pack(answer), latency=0.5,
            unit=unit, **row,
        )  # fmt: skip
        return name, task, call

    async def say(self, msg_id: str, reward: float) -> None:
        """Have a user say what an answer was worth."""
        ref = qualified(DEFAULT, msg_id)
        async with self.database.write() as session:
            await feedback.add(session, NewFeedback(f"f-{msg_id}-{reward}", "msg_id", (ref,), reward), self.now)

    async def pass_(self, seconds: float) -> None:
        """Have time go by, and the stage run until it has nothing more to do."""
        self.now += seconds
        while await self.stage.step():
            pass

    async def rollout(self, number: int = 1) -> Rollout:
        """The rollout as it is stored."""
        async with self.database.read() as session:
            found = await rollouts.get(session, number)
        assert found is not None
        return found

    async def served(self) -> tuple[int | None, float]:
        """The version that is served, and its share."""
        async with self.database.read() as session:
            found = await serving.current(session)
        return found.version, found.share

    async def audited(self) -> list[str]:
        """The writes that the audit has, in their order."""
        async with self.database.read() as session:
            entries, _ = await page(session, Wanted(), 1000)
        return [entry["action"] for entry in reversed(entries)]

    async def units(self, arms: Sequence[bool], **fields: Any) -> None:
        """Have units assigned that say and fail as these fields tell, by the arm of each."""
        for number, treated in enumerate(arms):
            given = {name: value[treated] for name, value in fields.items()}
            await self.assign(f"{self.now:.0f}-{number}", treated, **given)
