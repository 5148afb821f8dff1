"""Delivery: the feedback of whole groups, then one commit, in one short critical section.

A group of runs is compared with itself, and the Explorer does so within one commit only. So a group goes out whole,
in one commit, and the row that says so is written before the first feedback. After a crash at any point that row,
with the Explorer's counters from before, tells what happened:

    counters went back          the Explorer restarted: what it had been told is gone   -> run the groups again
    its step number rose        the commit was carried out, only its answer was lost    -> delivered
    neither                     tell it again: the first reward of an answer wins, so
                                repeating has no effect, and the commit takes them all  -> delivered

A commit that the Explorer failed at does not show in them. It is remembered until the store has it. If the process is
killed before that, the delivery ends as the third row says, and its reason tells of the doubt (`_ASKED_AGAIN`).

Amid a delivery, `explorer.handover` sees to it that one process is told all of it.

The row also says which sidecar delivers it (`committer`). That one looks there, and at its lease, right before each
request that has an effect, and in each transaction that writes what became of it. A process that is stopped between
the look and the request can still send this one, after another has taken the delivery over. Of a feedback nothing comes
of it, as the first reward wins. A commit takes what is in the Explorer's queue at that moment, and may part a group
that the other one is telling of just then; the step number shows it, and such a group is dropped and counted.

The groups of the facade, and those of agents that their clients replay, go out in the same way, in the same commits.
Their answers went to somebody else's agent, so they cannot be run again: what the Explorer lost of them is marked
`lost`, unless its table of chats can be repaired and no commit can have taken them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.delivery.delivered import Delivered
from slipstream.errors import ExplorerError, ExplorerRefused, ExplorerRestarted, ExplorerUnavailable, SlipstreamError
from slipstream.explorer.calls import ExplorerCounters
from slipstream.explorer.handover import Handover
from slipstream.explorer.history import TrinityHistory
from slipstream.stages.context import RUNNERS, Context
from slipstream.store import commits, ready_groups
from slipstream.store.commits import Commit
from slipstream.store.experiences import ReadyGroup
from slipstream.store.ready_groups import Requeued
from slipstream.store.states import CommitState
from slipstream.tracing.catalogue import Attribute, Attributes, SpanName

_log = structlog.get_logger(__name__)

_MARGIN = 0.5
"""Seconds of the lease in which nothing is sent any more: a request needs some time to get there."""

_ASKED_AGAIN = "asked for twice: if the Explorer failed at the first, which is not known, these rewards are lost"


class TakenOver(SlipstreamError):
    """The delivery is another sidecar's by now, or may be: this one's lease ran out."""


class _Loss(NamedTuple):
    """Arguments of `Delivery._lost`, for a delivery whose commit was asked for."""

    commit: Commit
    state: CommitState
    reason: str
    untaken: bool


class Delivery:
    """Sends what a commit took, and writes down what became of it.

    Args:
        history: repairs what the Explorer lost of clients' groups, if given.

    Methods raise `TakenOver` where another sidecar has the delivery by now, and `ExplorerError` where the Explorer is
    away or failed: the delivery stays to be resumed.
    """

    def __init__(self, context: Context, explorer: Handover, history: TrinityHistory | None) -> None:
        self._stages = context.stages
        self._database = context.database
        self._metrics = context.metrics
        self._tracer = context.tracer
        self._membership = context.membership
        self._clock = context.clock
        self._explorer = explorer
        self._history = history
        self._loss: _Loss | None = None
        self._clip = context.settings.rewards.clip
        runs = context.settings.runs
        self._requeue = partial(ready_groups.requeue, limit=runs.max_attempts, webhook_runs=runs.mode == "webhook")

    @property
    def may_send(self) -> bool:
        """Return whether this sidecar's lease lasts long enough to send something."""
        return self._membership.left >= _MARGIN

    async def resume(self, commit: Commit) -> Delivered:
        """End a delivery whose end was cut off."""
        if self._loss is not None and self._loss.commit.id == commit.id:
            return await self.end_lost()
        async with self._database.read() as session:
            groups = await ready_groups.of_commit(session, commit.id)
        now = await self._explorer.counters()
        _log.info("commit_resumed", commit=commit.id, groups=len(groups))
        if now.restarted_since(commit.explorer_ready, commit.explorer_total, commit.explorer_step):
            reason = "the Explorer restarted before the commit"
            untaken = commit.state == CommitState.SENDING and now.ready == 0
            return await self._lost(commit, groups, CommitState.LOST, reason, untaken=untaken)
        if commit.state == CommitState.ASKED and now.step > commit.explorer_step:
            return await self._delivered(commit, groups)
        return await self.send(commit, groups, now)

    async def end_lost(self) -> Delivered:
        """End a delivery whose commit came to nothing while the store was away, if there is one. Nobody else can see it
        in the Explorer's counters."""
        if self._loss is None:
            return Delivered()
        commit, state, reason, untaken = self._loss
        async with self._database.read() as session:
            groups = await ready_groups.of_commit(session, commit.id)
        return await self._lost(commit, groups, state, reason, untaken=untaken)

    async def send(self, commit: Commit, groups: Sequence[ReadyGroup], counters: ExplorerCounters) -> Delivered:
        """Feed back each group and commit.

        `counters` are the Explorer's at this moment: later than those in `commit` when a delivery is resumed.
        """
        untaken = commit.state == CommitState.SENDING  # no commit was asked for that could have taken these groups
        unknown: list[ReadyGroup] = []
        in_part: list[ReadyGroup] = []
        parted: list[ReadyGroup] = []
        fresh = counters.ready == commit.explorer_ready  # else some of this had its effect before a cut
        before_ours = not fresh and counters.step > commit.explorer_step  # a commit of nobody here: see above
        reason = "the Explorer restarted during the feedback"
        for group in groups:
            try:
                with self._tracer.span(SpanName.FEEDBACK, _told(commit, group)):
                    after = await self._feed_back(commit, group, counters if fresh else None)
            except ExplorerRestarted:
                return await self._lost(commit, groups, CommitState.LOST, reason, untaken=untaken)
            if after.restarted_since(counters.ready, counters.total, counters.step):
                # behind a gateway the new process may have taken the last ones, and its next commit would
                return await self._lost(commit, groups, CommitState.LOST, reason, untaken=untaken and after.ready == 0)
            taken = after.ready - counters.ready
            if (taken and after.step > counters.step) or (before_ours and taken < group.size):
                parted.append(group)
            elif taken == 0:
                unknown.append(group)
            elif taken < group.size:
                in_part.append(group)
            elif taken > group.size:
                _log.error("more_had_effect_than_was_told", commit=commit.id, group_id=group.id)
            counters = after
        unsure: list[ReadyGroup] = []
        if counters.ready - commit.explorer_ready >= sum(group.size for group in groups):
            unknown, in_part = [], []  # a resumed delivery: what had no effect now had it before the cut
        elif not fresh:
            unknown, unsure = [], unknown  # had before the cut, or forgotten: run again, they could be trained on twice
        dropped = [
            (in_part, "the Explorer knew a part of it only"),
            (parted, "another commit came amid its feedback, and may have taken a part"),
            (unsure, "the delivery was cut off, and whether the Explorer had been told of it is not known"),
        ]
        settled = await self._settle(commit, counters, unknown, dropped)
        left_out = {group.id for group in unknown} | {group.id for part, _ in dropped for group in part}
        groups = [group for group in groups if group.id not in left_out]
        asked = replace(commit, state=CommitState.ASKED)
        return (await self._commit(asked, groups, counters, untaken=untaken)).after(settled)

    async def _feed_back(self, commit: Commit, group: ReadyGroup, before: ExplorerCounters | None) -> ExplorerCounters:
        """Feed back one group; with the counters from before, only its first answer where the Explorer has forgotten
        that one: what it has not forgotten of the others is not to be trained without it."""
        for number, experience in enumerate(group.experiences):
            if number == 1 and before is not None:
                after = await self._explorer.counters()
                if after.ready <= before.ready:
                    return after
            await self._check(commit)
            lowest, highest = self._clip
            try:
                await self._explorer.feedback(
                    msg_id=experience.msg_id,
                    reward=min(max(experience.reward, lowest), highest),  # it may be of an earlier range
                    task_id=group.id,
                    run_id=experience.run_id,
                    allowed=partial(self._allow, commit),
                )
            except ExplorerRefused as error:  # it shows in the counters as an experience that had no effect
                self._tracer.current().fail(type(error).__name__)
                _log.error("feedback_refused", group_id=group.id, run_id=experience.run_id, reason=str(error))
        return await self._explorer.counters()

    async def _settle(
        self,
        commit: Commit,
        counters: ExplorerCounters,
        unknown: Sequence[ReadyGroup],
        dropped: Sequence[tuple[Sequence[ReadyGroup], str]],
    ) -> Delivered:
        """Before the commit is asked for, part with what it will not take whole, so that whoever ends this delivery
        finds it so. What the Explorer did not know is given back; what it knew in part cannot be.

        Args:
            dropped: groups, each with the reason.
        """
        now = self._clock()
        async with self._database.write() as session:
            await self._hold(session, commit)
            for groups, why in dropped:
                await ready_groups.drop(session, groups, why, now)
            reason = "the Explorer does not know its answers"
            requeued = await self._requeue(session, unknown, reason, now, repaired=False)
            await commits.ask(session, commit.id, counters.step)
        for groups, why in dropped:
            if groups:
                _log.error("groups_not_delivered", commit=commit.id, groups=[group.id for group in groups], reason=why)
        self._metrics.groups.labels("dropped").inc(sum(len(groups) for groups, _ in dropped))
        self._requeued(requeued)
        return Delivered(commit.id, run_again=requeued.run_again, lost=requeued.lost)

    async def _commit(
        self, commit: Commit, groups: Sequence[ReadyGroup], counters: ExplorerCounters, *, untaken: bool
    ) -> Delivered:
        """Have the Explorer commit what it was told, and find out whether it did."""
        restarted = "the Explorer restarted right before the commit"
        try:
            await self._explorer.commit(allowed=partial(self._allow, commit))
        except ExplorerRestarted:
            return await self._lost(commit, groups, CommitState.LOST, restarted, untaken=untaken)
        except ExplorerUnavailable as error:
            if error.status != 500:
                raise  # whether it was carried out is not known; the step number will tell
            now = await self._counters_now()
            if now is not None and now.step > counters.step:  # it failed behind that: at what it logs of it
                return await self._delivered(commit, groups)
            # Trinity has emptied its queue by now, and a new feedback of the same answers has no effect
            reason = f"the Explorer failed at the commit: {error} {error.said}"
            return await self._lost(commit, groups, CommitState.FAILED, reason, untaken=untaken and now is not None)
        if await self._committed_by_another(counters):
            return await self._lost(commit, groups, CommitState.LOST, restarted, untaken=untaken)
        return await self._delivered(commit, groups, None if untaken else _ASKED_AGAIN)

    async def _committed_by_another(self, before: ExplorerCounters) -> bool:
        """Return whether a new process carried out the commit, on an empty queue. A process that restarted after it has
        step 0."""
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

    async def _delivered(self, commit: Commit, groups: Sequence[ReadyGroup], reason: str | None = None) -> Delivered:
        """The commit was carried out, and has taken these groups."""
        experiences = sum(group.size for group in groups)
        now = self._clock()
        async with self._database.write() as session:
            await self._hold(session, commit)
            await ready_groups.deliver(session, commit.id, now)
            await commits.end(session, commit.id, CommitState.DELIVERED, now, experiences=experiences, reason=reason)
        self._metrics.groups.labels("delivered").inc(len(groups))
        self._metrics.experiences.inc(experiences)
        self._metrics.commits.labels("delivered").inc()
        _log.info("commit_delivered", commit=commit.id, groups=len(groups), experiences=experiences)
        return Delivered(commit.id, len(groups), experiences)

    async def _lost(
        self, commit: Commit, groups: Sequence[ReadyGroup], state: CommitState, reason: str, *, untaken: bool
    ) -> Delivered:
        """The Explorer has forgotten what it was told: the groups are run again, or repaired, where that is possible.

        Args:
            untaken: no commit has taken them. Else a repair could have them trained on twice.
        """
        if commit.state == CommitState.ASKED:
            self._loss = _Loss(commit, state, reason, untaken)  # before the store knows it, which may be away
        self._tracer.current().fail(state)
        await self._check(commit)
        repaired = untaken and await self._repair(commit, groups)
        now = self._clock()
        async with self._database.write() as session:
            await self._hold(session, commit)
            requeued = await self._requeue(session, groups, reason, now, repaired=repaired)
            await commits.end(session, commit.id, state, now, reason=reason, experiences=0)
        self._loss = None
        self._metrics.commits.labels(state).inc()
        self._requeued(requeued)
        _log.warning("commit_lost", commit=commit.id, groups=len(groups), reason=reason)
        return Delivered(commit.id, run_again=requeued.run_again, lost=requeued.lost)

    async def _repair(self, commit: Commit, groups: Sequence[ReadyGroup]) -> bool:
        """Have the Explorer take again the groups that cannot be run again. Returns whether it will. Before the commit
        was asked for, that can wait for Trinity's history; after it, the end is not to be left to memory alone."""
        lost = [experience.msg_id for group in groups if not group.repeatable for experience in group.experiences]
        if self._history is None or not lost:
            return False
        try:
            return await self._history.release(lost)
        except ExplorerUnavailable:
            if commit.state == CommitState.SENDING:
                raise
            return False

    def _requeued(self, groups: Requeued) -> None:
        self._metrics.groups.labels("run_again").inc(groups.run_again)
        self._metrics.groups.labels("dropped").inc(groups.dropped)
        self._metrics.groups.labels("repaired").inc(groups.repaired)
        self._metrics.groups.labels("lost").inc(groups.lost)
        if groups.run_again:
            self._stages.wake(*RUNNERS)

    async def _check(self, commit: Commit) -> None:
        """Look whether the delivery is still this sidecar's: by the store, which knows who took it over."""
        async with self._database.read() as session:
            await self._hold(session, commit)

    async def _hold(self, session: AsyncSession, commit: Commit) -> None:
        if not await commits.held(session, commit.id, self._membership.id):
            raise TakenOver(f"the delivery {commit.id} is another sidecar's")

    def _allow(self, commit: Commit) -> None:
        """Look again, at the last moment: by the clock, which goes on while a process is stopped."""
        if commit.owner != self._membership.id or not self.may_send:
            raise TakenOver(f"the delivery {commit.id} may be another sidecar's: the lease runs out")


def _told(commit: Commit, group: ReadyGroup) -> Attributes:
    """The attributes of the span of a group's feedback."""
    return {
        Attribute.COMMIT: commit.id,
        Attribute.GROUP: group.id,
        Attribute.EXPERIENCES: group.size,
    }
