"""Decisions by hand that take two persons: one asks, another approves. Persons are told apart by the names of their
keys."""

from __future__ import annotations

from dataclasses import replace

from slipstream.errors import RequestError
from slipstream.rollouts import commands
from slipstream.rollouts.stage import Rollouts
from slipstream.stages.context import Context
from slipstream.store import rollouts
from slipstream.store.audit import Author
from slipstream.store.rollouts import Asked, Rollout, Verdict

OF_TWO = (Verdict.ADVANCE, Verdict.PROMOTE)
"""Decisions that send more users to a version. All others go back, or stay: one person is enough, and quick."""


async def ask(
    context: Context, stage: Rollouts, rollout_id: int, verdict: Verdict, by: Author, *, force: bool = False
) -> Rollout:
    """Note that a person wants a decision, which another one is to approve.

    Raises:
        RequestError: 404, there is no such rollout; 409, its state does not have this decision, another person has
            asked for it already, or the caller has no name.
    """
    name = _named(by)
    while True:
        rollout, _ = await commands.decided(context, stage, rollout_id, verdict)
        before = rollout.asked
        if before is not None and before.action == verdict and before.by != name and before.force == force:
            text = (
                f"rollout {rollout_id}: {before.by} has asked to {verdict}; approve that (POST /rollouts/{rollout_id}"
            )
            raise RequestError(f"{text}/approve) in the place of asking again", status=409, code="approval_waits")
        asked = Asked(verdict.value, name, context.clock(), force)
        async with context.database.write() as session:
            if (after := await rollouts.ask(session, rollout, asked, by)) is not None:
                return after


async def waiting(
    context: Context, rollout_id: int, action: str, by: Author, *, force: bool = False, at: float | None = None
) -> Asked:
    """Return the decision that this person may approve.

    Args:
        action, force: of the decision that the person has seen.
        at: when that was asked for, in Unix seconds; None for whatever waits.

    Raises:
        RequestError: 404, there is no such rollout; 409, nothing or another decision waits, or the person that is to
            approve it has asked for it.
    """
    name = _named(by)
    async with context.database.read() as session:
        rollout = await rollouts.get(session, rollout_id)
    if rollout is None:
        raise RequestError(f"there is no rollout {rollout_id}", status=404, code="not_found")
    asked = rollout.asked
    if asked is None:
        raise _nothing("action", "nothing", rollout_id)
    if (param := _other(asked, action, force, at)) is not None:
        forced = " by force" if asked.force else ""
        raise _nothing(param, f"{asked.action}{forced}, which {asked.by} asked for,", rollout_id)
    if asked.by == name:
        text = f"rollout {rollout_id}: {name} has asked to {action}, so another person has to approve it: a key of "
        text += f"another name with the role operator or admin; this one is {name} too"
        raise RequestError(text, status=409, code="second_person")
    return asked


async def approve(
    context: Context, stage: Rollouts, rollout_id: int, asked: Asked, by: Author, *, note: str | None = None
) -> Rollout:
    """Carry out what was asked for, as it was seen by whoever approves it.

    Raises:
        RequestError: as `commands.by_hand`; 409, something else was decided or asked for meanwhile.
    """
    both = f"asked for by {asked.by}, approved by {by.key}"
    while True:
        rollout, made = await commands.decided(context, stage, rollout_id, Verdict(asked.action))
        if rollout.asked != asked:
            text = f"rollout {rollout_id}: something else was decided or asked for meanwhile; look at it again"
            raise RequestError(text, status=409, code="nothing_asked")
        reasons = "; ".join(filter(None, (made.reason, note, both)))
        if after := await stage.carry_out(rollout, replace(made, reason=reasons), by):
            commands.woken(context)
            return after


def _nothing(param: str, waits: str, rollout_id: int) -> RequestError:
    text = f"{param}: expected a decision that waits for approval; {waits} waits for rollout {rollout_id}"
    return RequestError(text, param=param, status=409, code="nothing_asked")


def _other(asked: Asked, action: str, force: bool, at: float | None) -> str | None:
    """The field by which what waits is not what is to be approved; None if it is that."""
    if asked.action != action:
        return "action"
    if asked.force != force:
        return "force"
    return "at" if at not in (None, asked.at) else None


def _named(by: Author) -> str:
    """
    Raises:
        RequestError: 409, no key says who this is.
    """
    if by.key is None:
        text = "rollouts.approval is second_person: expected a key, by whose name persons are told apart; found none"
        raise RequestError(text, status=409, code="second_person")
    return by.key
