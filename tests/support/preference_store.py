"""A store with answers of production and of the policy, and annotators who compare them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from contexts import context
from prometheus_client import CollectorRegistry
from scripted import completion
from sqlalchemy import update

from slipstream.metrics import Metrics
from slipstream.preferences.offering import next_offer, rules
from slipstream.store import preferences
from slipstream.store.bodies import pack
from slipstream.store.database import Database
from slipstream.store.preferences import Choice, Judged, NewJudgement, Offer, PairKind
from slipstream.store.states import RunState
from slipstream.store.tables.capture import CallRow, TaskRow
from slipstream.store.tables.preferences import PreferenceOfferRow
from slipstream.store.tables.runs import GroupRow, RunRow
from slipstream.tenants import DEFAULT, qualified

NOW = 1_000_000.0


class Compared:
    """Pairs over a store.

    Attributes:
        now: Unix seconds of its clock.
    """

    def __init__(self, database: Database, **settings: Any) -> None:
        self.database = database
        self.now = NOW
        metrics = Metrics(CollectorRegistry())
        self.context, _ = context(database, metrics, lambda: self.now, preferences=settings)
        self._numbers = itertools.count()

    async def group(
        self,
        task: str,
        runs: Sequence[str] = ("the policy's",),
        production: str = "production's",
        session: str = "s",
        versions: Sequence[int | None] = (),
        tenant: str = DEFAULT,
        variant: str | None = None,
    ) -> None:
        """Have a task whose call production answered, or a variant, and the policy as often as there are runs."""
        self.now += 1
        task_id = qualified(tenant, task)
        async with self.database.write() as write:
            write.add(
                TaskRow(
                    id=task_id, session_id=qualified(tenant, session), tenant=tenant, decided=True,
                    created_at=self.now, updated_at=self.now,
                )
            )  # fmt: skip
            await write.flush()
            request = {"model": "prod", "messages": [{"role": "user", "content": f"about {task}"}]}
            call = CallRow(
                task_id=task_id, position=0, msg_id=task_id, request=pack(request), latency=0.5, variant=variant,
                answer=pack(completion("prod-1", production)), started_at=self.now,
            )  # fmt: skip
            write.add(call)
            await write.flush()
            write.add(GroupRow(id=f"{task_id}.0", task_id=task_id, call_id=call.id, updated_at=self.now))
            await write.flush()
            for number, text in enumerate(runs):
                version = versions[number] if versions else 3
                write.add(
                    RunRow(
                        group_id=f"{task_id}.0", run_id=number, state=RunState.SCORED, policy_version=version,
                        answer=pack(completion(f"policy-{next(self._numbers)}", text)), updated_at=self.now,
                    )
                )  # fmt: skip

    async def next(
        self,
        annotator: str = "ann",
        kind: PairKind | None = None,
        tenant: str | None = None,
        after: str | None = None,
    ) -> Offer | None:
        """The annotator's next pair."""
        return await next_offer(self.context, annotator, tenant, kind, after)

    async def offered(self, annotator: str = "ann", kind: PairKind | None = None) -> Offer:
        """The annotator's next pair, of which there is one."""
        found = await self.next(annotator, kind)
        assert found is not None
        return found

    async def judge(self, offer: Offer | str, choice: str, annotator: str = "ann", **more: Any) -> Judged:
        """Have an annotator judge a pair."""
        pair = offer if isinstance(offer, str) else offer.pair_id
        new = NewJudgement(pair, annotator, Choice(choice), **more)
        async with self.database.write() as write:
            return await preferences.judge(write, new, rules(self.context), self.now)

    async def shown_in_order(self, offer: Offer) -> None:
        """Have a pair's left answer shown first to everybody who has it."""
        rows = update(PreferenceOfferRow).where(PreferenceOfferRow.pair_id == offer.pair_id)
        async with self.database.write() as write:
            await write.execute(rows.values(swapped=False))
