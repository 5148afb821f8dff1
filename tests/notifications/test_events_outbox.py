"""The outbox of webhooks in the store: an event is as durable as its decision, and each receiver is told once."""

from __future__ import annotations

import pytest
from stores import ON_BOTH_STORES, stored_rows

from slipstream.store import evaluations, events, outbox, rollouts, serving, sidecars
from slipstream.store.audit import Author
from slipstream.store.clock_skew import bring_back
from slipstream.store.database import Database
from slipstream.store.outbox import Delivery, Waiting
from slipstream.store.rollouts import DECIDER, Change, Rollout, Verdict
from slipstream.store.states import EvaluationState, ImpossibleTransition, RolloutState
from slipstream.webhooks.events import EventType

pytestmark = ON_BOTH_STORES

NOW = 1_000_000.0
ALL = frozenset(EventType)


async def kill(database: Database, now: float = NOW) -> None:
    async with database.write() as session:
        await serving.kill(session, now)
        await serving.revive(session, now)


async def give(database: Database, **receivers: frozenset[EventType]) -> None:
    async with database.write() as session:
        await outbox.give(session, receivers, NOW)


async def claim(database: Database, receiver: str, sidecar: int, now: float = NOW) -> Delivery | None:
    async with database.write() as session:
        return await outbox.claim(session, receiver, sidecar, now)


async def _carried_out_in_vain(database: Database, rollout: Rollout, change: Change) -> None:
    """A decision in a transaction that fails after it."""
    async with database.write() as session:
        after = await rollouts.carry_out(session, rollout, change, DECIDER, NOW)
        assert after is not None
        pending = Change(Verdict.RESUME, RolloutState.PENDING, 0, 0.0, "", {})
        await rollouts.carry_out(session, after, pending, DECIDER, NOW)


async def test_each_decision_leaves_an_event_and_a_decision_that_is_not_made_leaves_none(
    database: Database, store_url: str
) -> None:
    assert set(events._OF_DECISIONS) == set(Verdict)
    async with database.write() as session:
        rollout = await rollouts.open_(session, 8, {"steps": [0.05]}, 0.01, Author("operator", None), NOW)
    begin = Change(Verdict.BEGIN, RolloutState.RUNNING, 0, 0.05, "it begins", {}, lane_step=3)
    with pytest.raises(ImpossibleTransition):
        await _carried_out_in_vain(database, rollout, begin)
    harm = {"harm": {"proven": True}}
    objective = {"value": "reward", "difference": -0.2, "interval": [-0.3, -0.1], "better": {"proven": False}}
    evidence = {"units": {"control": 9, "treatment": 5}, "guardrails": {"failure": harm}, "objective": objective}
    back = Change(Verdict.ROLL_BACK, RolloutState.ROLLED_BACK, 0, 0.0, "harm is proven: failure", evidence)
    async with database.write() as session:
        running = await rollouts.carry_out(session, rollout, begin, DECIDER, NOW + 1)
        assert running is not None
        assert await rollouts.carry_out(session, rollout, begin, DECIDER, NOW + 1) is None
        await rollouts.carry_out(session, running, back, DECIDER, NOW + 2)
        asked = await evaluations.open_(session, 8, "faq", "hand", None, NOW)
        await evaluations.end(session, asked.id, EvaluationState.FAILED, NOW + 3, reason="what a case says")
        await serving.kill(session, NOW + 4)
        await serving.kill(session, NOW + 5)
    await give(database, ops=ALL)
    async with database.write() as session:
        mine = await sidecars.register(session, "one", 60, now=NOW, alone=True)
    told: list[Delivery] = []
    while (each := await claim(database, "ops", mine)) is not None:
        told.append(each)
        async with database.write() as session:
            await outbox.delivered(session, each)
    assert [(each.type, each.at - NOW) for each in told] == [
        ("version.candidate", 0), ("rollout.started", 1), ("rollout.rolled_back", 2), ("evaluation.ended", 3),
        ("serving.killed", 4),
    ]  # fmt: skip
    assert told[0].data["evidence"] is None
    assert told[2].data == {
        "rollout": rollout.id, "version": 8, "state": "rolled_back", "step": 0, "share": 0.0,
        "reason": "harm is proven: failure",
        "evidence": {
            "units": {"control": 9, "treatment": 5},
            "objective": {"value": "reward", "difference": -0.2, "interval": [-0.3, -0.1], "better": False},
            "harmed": ["failure"],
        },
    }  # fmt: skip
    assert (told[3].data["state"], told[3].data["verdict"]) == ("failed", None)
    assert "what a case says" not in str(told)
    assert await stored_rows(store_url, "SELECT count(*) FROM webhook_events") == [(0,)], "nothing is left behind"


async def test_a_receiver_gets_what_it_wants_and_an_event_that_nobody_wants_is_gone(
    database: Database, store_url: str
) -> None:
    await kill(database)
    async with database.read() as session:
        assert await outbox.waits(session, [], NOW)
    await give(database, killed=frozenset({EventType.SERVING_KILLED}))
    assert await stored_rows(store_url, "SELECT type FROM webhook_events") == [("serving.killed",)]
    await give(database, killed=ALL, later=ALL)
    async with database.read() as session:
        assert await outbox.waiting(session, ["killed", "later"]) == [Waiting("killed", 1, NOW), Waiting("later")]


async def test_of_several_sidecars_one_tells_a_receiver_and_after_its_death_another(database: Database) -> None:
    async with database.write() as session:
        one = await sidecars.register(session, "one", 60, now=NOW, alone=False)
        other = await sidecars.register(session, "other", 60, now=NOW, alone=False)
    await kill(database)
    await give(database, a=ALL, b=ALL)
    first = await claim(database, "a", one)
    assert first is not None
    assert await claim(database, "a", other) is None, "the second event waits for the first one's end"
    assert await claim(database, "b", other) is not None, "another receiver does not"
    async with database.write() as session:
        await sidecars.resign(session, one)
        await sidecars.take_over(session, other, [one], NOW)
    again = await claim(database, "a", other)
    assert again == first
    async with database.write() as session:
        await outbox.postpone(session, first, one, NOW + 60, "HTTP 500")  # it was only stopped, and comes too late
    assert await claim(database, "a", other) == first
    async with database.write() as session:
        await outbox.postpone(session, first, other, NOW + 60, "HTTP 500")
    second = await claim(database, "a", other)
    assert second is not None
    assert second.event > first.event, "one that fails does not hold back the next"
    async with database.write() as session:
        await outbox.delivered(session, second)
    assert await claim(database, "a", other) is None
    later = await claim(database, "a", other, NOW + 60)
    assert later is not None
    assert (later.event, later.attempts) == (first.event, 1)


async def test_an_event_that_waits_is_not_dropped_for_the_many_that_were_told_since(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MOST", 3)
    await kill(database)
    await give(database, away=frozenset({EventType.SERVING_KILLED}))
    for _ in range(3):
        await kill(database)
        await give(database)  # nobody wants these
    await kill(database)
    async with database.write() as session:
        assert await outbox.drop(session, NOW, 100) == (0, {})
        [waits] = await outbox.waiting(session, ["away"])
    assert waits.count == 1


async def test_what_is_too_old_or_too_much_is_dropped_and_counted(
    database: Database, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kill(database)
    await give(database, a=ALL, b=frozenset({EventType.SERVING_KILLED}))
    late = NOW + outbox.KEPT
    assert await claim(database, "a", 1, late) is None
    monkeypatch.setattr(outbox, "MOST", 4)
    for _ in range(3):
        await kill(database, late)
    async with database.write() as session:
        assert await outbox.drop(session, late - 1, 1) == (1, {"a": 1, "b": 1}), "of eight, 4 may be"
        assert await outbox.drop(session, late, 100) == (3, {"a": 1})
        assert await outbox.drop(session, late, 100) == (0, {})
    assert await stored_rows(store_url, "SELECT count(*) FROM webhook_events") == [(4,)]
    assert await stored_rows(store_url, "SELECT count(*) FROM webhook_deliveries") == [(0,)]


async def test_events_of_a_clock_that_was_ahead_are_told_now_and_pauses_are_kept(database: Database) -> None:
    async with database.write() as session:
        mine = await sidecars.register(session, "one", 60, now=NOW, alone=True)

    async def fail(receiver: str, at: float, pause: float) -> None:
        told = await claim(database, receiver, mine, at)
        assert told is not None
        async with database.write() as session:
            await outbox.postpone(session, told, mine, at + pause, "HTTP 500")

    killed = frozenset({EventType.SERVING_KILLED})
    await kill(database, NOW + 3600)
    async with database.write() as session:
        await outbox.give(session, dict.fromkeys(("new", "tried", "pauses"), killed), NOW + 3600)
    await fail("tried", NOW + 3600, 300)
    await fail("pauses", NOW + 3600, 300 - 3600)  # a try that ended once the clock was right
    for receiver in ("new", "tried", "pauses"):
        assert await claim(database, receiver, mine) is None
    async with database.write() as session:
        await bring_back(session, NOW, tolerated=5)
    assert await claim(database, "new", mine) is not None
    assert await claim(database, "tried", mine) is not None
    assert await claim(database, "pauses", mine, NOW + 299) is None
    assert await claim(database, "pauses", mine, NOW + 300) is not None
