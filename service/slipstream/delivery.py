"""Delivery: the feedback of whole groups, then one commit, in one short critical section.

A group of runs is compared with itself, and the Explorer does so within one commit only. So a group goes out whole,
in one commit, and the row that says so is written before the first feedback. After a crash at any point that row,
with the Explorer's counters from before, tells what happened:

    counters went back          the Explorer restarted: what it had been told is gone   -> run the groups again
    its step number rose        the commit was carried out, only its answer was lost    -> delivered
    neither                     tell it again: the first reward of an answer wins, so
                                repeating has no effect, and the commit takes them all  -> delivered

The groups of the facade, and those of agents that their clients replay, go out in the same way, in the same commits.
Their answers went to somebody else's agent, so they cannot be run again: what the Explorer lost of them is marked
`lost`, unless its table of chats can be repaired and no commit can have taken them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import structlog

from slipstream.errors import ExplorerError, ExplorerRefused, ExplorerUnavailable
from slipstream.metrics import Metrics
from slipstream.runs.explorer import ExplorerClient, ExplorerCounters
from slipstream.runs.history import TrinityHistory
from slipstream.store import commits, facade
from slipstream.store.commits import GivenBack
from slipstream.store.database import Database
from slipstream.store.experiences import ReadyGroup
from slipstream.store.tables import CommitRow

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Delivered:
    """What one call of `Committer.commit` did.

    Attributes:
        commit: the commit's number, or None when there was nothing to deliver.
        groups, experiences: delivered now.
        run_again: groups that the Explorer had lost, and that are run again.
        lost: groups of clients that the Explorer had lost.
    """

    commit: int | None = None
    groups: int = 0
    experiences: int = 0
    run_again: int = 0
    lost: int = 0

    def after(self, earlier: Delivered) -> Delivered:
        """This one, together with an earlier one that was ended by the same call."""
        return Delivered(
            self.commit,
            self.groups + earlier.groups,
            self.experiences + earlier.experiences,
            self.run_again + earlier.run_again,
            self.lost + earlier.lost,
        )

    def as_dict(self) -> dict[str, int | None]:
        return asdict(self)


class Committer:
    """Delivers ready groups, one delivery at a time.

    Args:
        history: repairs what the Explorer lost of clients' groups, if given.
        max_generations: how often a group may be run because the Explorer lost it.
        webhook_runs: there is an endpoint that runs agents again.
        group_size, group_idle: a group of the facade is complete with so many runs, or after so many seconds.
        clock: Unix seconds.
        planned: called when groups are to be run again.
    """

    def __init__(
        self,
        database: Database,
        explorer: ExplorerClient,
        metrics: Metrics,
        *,
        history: TrinityHistory | None,
        max_generations: int,
        webhook_runs: bool,
        group_size: int,
        group_idle: float,
        clock: Callable[[], float],
        planned: Callable[[], None],
    ) -> None:
        self._database = database
        self._explorer = explorer
        self._metrics = metrics
        self._history = history
        self._give_back = partial(commits.give_back, limit=max_generations, webhook_runs=webhook_runs)
        self._group_size = group_size
        self._group_idle = group_idle
        self._clock = clock
        self._planned = planned
        self._one_at_a_time = asyncio.Lock()

    async def commit(self, trigger: str, minimum: int = 1) -> Delivered:
        """Deliver what is ready, if that is at least `minimum` experiences.

        Raises:
            ExplorerError: the Explorer is away or failed. Nothing is lost: what was begun is ended by the next call.
        """
        async with self._one_at_a_time:
            try:
                return await self._commit(trigger, minimum)
            except ExplorerError:
                self._metrics.commits.labels("error").inc()
                raise

    async def _commit(self, trigger: str, minimum: int) -> Delivered:
        await self._end_waiting()
        async with self._database.read() as session:
            unfinished = await commits.unfinished(session)
            ready = await commits.ready_experiences(session)
        resumed = await self._resume(unfinished) if unfinished is not None else Delivered()
        if ready < max(1, minimum):
            return resumed
        before = await self._explorer.counters()
        row = CommitRow(
            trigger=trigger,
            groups=0,
            experiences=0,
            explorer_ready=before.ready,
            explorer_total=before.total,
            explorer_step=before.step,
            started_at=self._clock(),
        )
        async with self._database.write() as session:
            groups = await commits.begin(session, row)
        return (await self._send(row, groups, before)).after(resumed)

    async def _end_waiting(self) -> None:
        """Groups of the facade that nothing came for any more are complete, or dropped."""
        now = self._clock()
        async with self._database.write() as session:
            dropped = await facade.end_waiting(session, now - self._group_idle, self._group_size, now)
        if dropped:
            _log.warning("facade_groups_of_one_run_dropped", groups=dropped)
            self._metrics.groups.labels("dropped").inc(dropped)

    async def _resume(self, row: CommitRow) -> Delivered:
        """End a delivery whose end was cut off."""
        async with self._database.read() as session:
            groups = await commits.of_commit(session, row.id)
        now = await self._explorer.counters()
        _log.info("commit_resumed", commit=row.id, groups=len(groups))
        if now.restarted_since(row.explorer_ready, row.explorer_total, row.explorer_step):
            reason = "the Explorer restarted before the commit"
            return await self._lost(row, groups, "lost", reason, untaken=row.state == "sending" and now.ready == 0)
        if now.step > row.explorer_step:
            return await self._delivered(row, groups)
        return await self._send(row, groups, now)

    async def _send(self, row: CommitRow, groups: Sequence[ReadyGroup], counters: ExplorerCounters) -> Delivered:
        """Feed back each group and commit.

        `counters` are the Explorer's at this moment: later than those in `row` when a delivery is resumed.
        """
        untaken = row.state == "sending"  # no commit was asked for that could have taken these groups
        unknown: list[ReadyGroup] = []
        partial: list[ReadyGroup] = []
        fresh = counters.ready == row.explorer_ready  # else some of this had its effect before a cut
        for group in groups:
            after = await self._feed_back(group, counters if fresh else None)
            if after.restarted_since(counters.ready, counters.total, counters.step):
                reason = "the Explorer restarted during the feedback"
                # the new process may have taken the last ones, and its next commit would
                return await self._lost(row, groups, "lost", reason, untaken=untaken and after.ready == 0)
            taken = after.ready - counters.ready
            if taken == 0:
                unknown.append(group)
            elif taken < group.size:
                partial.append(group)
            counters = after
        if counters.ready - row.explorer_ready >= sum(group.size for group in groups):
            unknown, partial = [], []  # a resumed delivery: what had no effect now had it before the cut
        async with self._database.write() as session:
            await commits.ask(session, row.id)
        try:
            await self._explorer.commit()
        except ExplorerUnavailable as error:
            if error.status != 500:
                raise  # whether it was carried out is not known; the step number will tell
            now = await self._counters_now()
            if now is not None and now.step > counters.step:  # it failed behind that: at what it logs of it
                return await self._delivered(row, groups, unknown, partial)
            # Trinity has emptied its queue by now, and a new feedback of the same answers has no effect
            reason = f"the Explorer failed at the commit: {error} {error.said}"
            return await self._lost(row, groups, "failed", reason, untaken=untaken and now is not None)
        if await self._committed_by_another(counters):
            reason = "the Explorer restarted right before the commit"
            return await self._lost(row, groups, "lost", reason, untaken=untaken)
        return await self._delivered(row, groups, unknown, partial)

    async def _committed_by_another(self, before: ExplorerCounters) -> bool:
        """Whether a new process carried out the commit, on an empty queue. One that restarted after it has step 0."""
        after = await self._counters_now()
        if after is None:
            return False
        return after.restarted_since(before.ready, before.total, before.step) and after.step > 0

    async def _counters_now(self) -> ExplorerCounters | None:
        """The counters behind a commit; None where the Explorer is gone since, after it had answered."""
        try:
            return await self._explorer.counters()
        except ExplorerError:
            return None

    async def _feed_back(self, group: ReadyGroup, before: ExplorerCounters | None) -> ExplorerCounters:
        """Feed back one group; with the counters from before, only its first answer where the Explorer has forgotten
        that one: what it has not forgotten of the others is not to be trained without it."""
        for number, experience in enumerate(group.experiences):
            if number == 1 and before is not None:
                after = await self._explorer.counters()
                if after.ready == before.ready:
                    return after
            try:
                await self._explorer.feedback(
                    msg_id=experience.msg_id, reward=experience.reward, task_id=group.id, run_id=experience.run_id
                )
            except ExplorerRefused as error:  # it shows in the counters as an experience that had no effect
                _log.error("feedback_refused", group_id=group.id, run_id=experience.run_id, reason=str(error))
        return await self._explorer.counters()

    async def _delivered(
        self,
        row: CommitRow,
        groups: Sequence[ReadyGroup],
        unknown: Sequence[ReadyGroup] = (),
        partial: Sequence[ReadyGroup] = (),
    ) -> Delivered:
        """The commit was carried out. What the Explorer did not know is given back; what it knew in part cannot be."""
        left_out = {group.id for group in (*unknown, *partial)}
        delivered = [group for group in groups if group.id not in left_out]
        experiences = sum(group.size for group in delivered)
        now = self._clock()
        async with self._database.write() as session:
            await commits.drop(session, partial, "the Explorer knew a part of it only", now)
            reason = "the Explorer does not know its answers"
            given_back = await self._give_back(session, unknown, reason, now, repaired=False)
            await commits.deliver(session, row.id, now)
            await commits.end(session, row.id, "delivered", now, experiences=experiences)
        if partial:
            _log.error("groups_known_in_part", commit=row.id, groups=[group.id for group in partial])
        self._metrics.groups.labels("delivered").inc(len(delivered))
        self._metrics.experiences.inc(experiences)
        self._metrics.commits.labels("delivered").inc()
        self._metrics.groups.labels("dropped").inc(len(partial))
        self._given_back(given_back)
        _log.info("commit_delivered", commit=row.id, groups=len(delivered), experiences=experiences)
        return Delivered(row.id, len(delivered), experiences, given_back.run_again, given_back.lost)

    async def _lost(
        self, row: CommitRow, groups: Sequence[ReadyGroup], state: str, reason: str, *, untaken: bool
    ) -> Delivered:
        """The Explorer has forgotten what it was told: the groups are run again, or repaired, where that is possible.

        Args:
            untaken: no commit has taken them. Else a repair could have them trained on twice.
        """
        repaired = untaken and await self._repair(groups)
        now = self._clock()
        async with self._database.write() as session:
            given_back = await self._give_back(session, groups, reason, now, repaired=repaired)
            await commits.end(session, row.id, state, now, reason=reason, experiences=0)
        self._metrics.commits.labels(state).inc()
        self._given_back(given_back)
        _log.warning("commit_lost", commit=row.id, groups=len(groups), reason=reason)
        return Delivered(row.id, run_again=given_back.run_again, lost=given_back.lost)

    async def _repair(self, groups: Sequence[ReadyGroup]) -> bool:
        """Have the Explorer take again the groups that cannot be run again. Returns whether it will."""
        lost = [experience.msg_id for group in groups if not group.repeatable for experience in group.experiences]
        return self._history is not None and bool(lost) and await self._history.release(lost)

    def _given_back(self, groups: GivenBack) -> None:
        self._metrics.groups.labels("run_again").inc(groups.run_again)
        self._metrics.groups.labels("dropped").inc(groups.dropped)
        self._metrics.groups.labels("repaired").inc(groups.repaired)
        self._metrics.groups.labels("lost").inc(groups.lost)
        if groups.run_again:
            self._planned()
