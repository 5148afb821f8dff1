"""A store with an experiment, its units and their calls, and the stage that decides about it."""

from __future__ import annotations

from typing import Any

from rollout_store import OPERATOR, VERSION, Decided

from slipstream.evaluation.verdicts import Verdicts
from slipstream.experiments.commands import shown, start_experiment, stop
from slipstream.experiments.plan import ExperimentPlan
from slipstream.experiments.stage import Experiments
from slipstream.runs.budget import Budget
from slipstream.store import experiments
from slipstream.store import feedback as feedbacks
from slipstream.store.database import Database
from slipstream.store.experiments import Experiment, Winner
from slipstream.store.feedback import NewFeedback
from slipstream.tenants import DEFAULT, qualified
from slipstream.versions.registry import VersionRegistry


class Tried(Decided):
    """The stage of experiments over a store, with that of rollouts beside it."""

    def __init__(self, database: Database, **sections: Any) -> None:
        super().__init__(database, **sections)
        judging = Budget(database, self.metrics, "judge", requests=None, clock=lambda: self.now)
        self.verdicts = Verdicts(self.context.settings.evaluation, self.stage)
        self.trial = Experiments(self.context, self.lane, self.isolation, judging, self.verdicts)

    async def close(self) -> None:
        await self.trial.aclose()
        await super().close()

    async def try_(self, b: str = f"version:{VERSION}", a: str = "production", **fields: Any) -> Experiment:
        """Start an experiment whose units are final after a minute."""
        plan = ExperimentPlan.model_validate({"min_units": 5, "grace": 60, **fields})
        registry = VersionRegistry(self.context.settings.serving, self.database, clock=lambda: self.now)
        return await start_experiment(
            self.context, self.trial, self.verdicts, registry, (a, b), "eight", plan, OPERATOR
        )

    async def stop(self, decision: Winner | None = None, *, force: bool = False) -> Experiment:
        """Stop it by hand."""
        return await stop(self.context, self.trial, self.verdicts, 1, decision, OPERATOR, force=force)

    async def pass_(self, seconds: float) -> None:
        """Have time go by, and the stages run until they have nothing more to do."""
        self.now += seconds
        while await self.trial.step():
            pass
        await super().pass_(0)

    async def experiment(self, number: int = 1) -> Experiment:
        """The experiment as it is stored."""
        async with self.database.read() as session:
            found = await experiments.get(session, number)
        assert found is not None
        return found

    async def shown(self) -> dict[str, Any]:
        """The experiment as people see it."""
        return await shown(self.context, self.trial, 1)

    async def users(
        self, count: int, prefix: str = "u", feedback: tuple[float, float] | None = None, failures: int = 0
    ) -> None:
        """Have users come in one transaction, every other one to `b`.

        Args:
            feedback: on the answers of `a` and of `b`; None for none.
            failures: of each user of `b`.
        """
        async with self.database.write() as session:
            said = []
            for number in range(count):
                treated = number % 2 == 1
                unit = self.unit_row(f"{prefix}{number}", treated, failures=failures * treated)
                name, task, call = self.call_rows(unit.unit, treated)
                session.add_all([unit, task])
                await session.flush()
                session.add(call)
                if feedback is not None:
                    said.append((name, feedback[treated], self.now))
            await session.flush()
            for name, reward, at in said:
                ref = qualified(DEFAULT, name)
                await feedbacks.add(session, NewFeedback(f"f-{name}", "msg_id", (ref,), reward), at)
