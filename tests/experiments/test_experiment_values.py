"""Values that an experiment compares over a store: components in their own range, and what no answer is stored of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from experiment_store import Tried
from sqlalchemy import select, update

from slipstream.errors import RequestError
from slipstream.store.bodies import pack
from slipstream.store.database import Database
from slipstream.store.tables.capture import CallRow
from slipstream.store.tables.experiments import ExperimentRow
from slipstream.store.tables.rollouts import LiveScoreRow
from slipstream.store.tables.serving import UnitRow

TONE = {"webhook": {"url": "http://127.0.0.1:9/", "component": "tone"}}
"""A calculator whose range is not known."""


@pytest.fixture
async def tried(database: Database) -> AsyncIterator[Tried]:
    made = Tried(database, rewards={"calculators": ["tool_calls", TONE]})
    await made.start()
    yield made
    await made.close()


async def score(tried: Tried, a: dict[str, float], b: dict[str, float]) -> None:
    """Have users of both arms come, whose answers have these breakdowns."""
    await tried.users(80)
    async with tried.database.write() as session:
        for call, arm in (await session.execute(select(CallRow.id, CallRow.arm))).all():
            breakdown = b if arm == "treatment" else a
            session.add(LiveScoreRow(call_id=call, value=0.0, breakdown=breakdown, scored_at=tried.now))


async def primary(tried: Tried) -> dict[str, Any]:
    """The primary metric of the report."""
    metrics = (await tried.shown())["report"]["metrics"]
    return next(metric for metric in metrics.values() if metric["primary"])


@pytest.mark.parametrize("component", ["tool_calls", "tool_calls.wrong_tool"])
async def test_arms_that_differ_below_zero_are_not_equal(tried: Tried, component: str) -> None:
    await tried.try_(metrics=[f"reward.{component}"], margin=0.1, scoring={"references": True})
    await tried.pass_(0)
    await score(tried, {component: -0.1}, {component: -0.9})
    await tried.pass_(200)
    assert (await tried.experiment()).winner == "a"
    found = await primary(tried)
    assert (found["a"]["mean"], found["b"]["mean"], found["difference"]) == (-0.1, -0.9, -0.8)


async def test_a_component_without_a_known_range_is_compared_in_the_range_of_the_plan(tried: Tried) -> None:
    with pytest.raises(RequestError, match="least and greatest value are known, found tone") as refused:
        await tried.try_(metrics=["failure", "reward.tone"])
    assert (refused.value.status, refused.value.param, refused.value.code) == (422, "metrics.1", "range_not_known")
    await tried.try_(metrics=["reward.tone"], ranges={"tone": [0, 10]})
    await tried.pass_(0)
    await score(tried, {"tone": 4.0}, {"tone": 9.0})
    await tried.pass_(200)
    assert (await tried.experiment()).winner == "b"
    found = await primary(tried)
    assert (found["a"]["mean"], found["b"]["mean"]) == (4.0, 9.0)


async def test_an_experiment_from_before_plans_had_ranges_keeps_to_that_of_rewards(tried: Tried) -> None:
    """Half of its units are counted: the others are to be measured alike."""
    component = "tool_calls"
    started = await tried.try_(metrics=[f"reward.{component}"], scoring={"references": True})
    plan = {name: value for name, value in started.plan.items() if name != "ranges"}
    async with tried.database.write() as session:
        await session.execute(update(ExperimentRow).values(plan=plan))
    await tried.pass_(0)
    await score(tried, {component: -0.9}, {component: 0.5})
    await tried.pass_(200)
    found = await primary(tried)
    assert (found["a"]["mean"], found["b"]["mean"]) == (0.0, 0.5)


async def test_units_that_the_rate_leaves_out_do_not_keep_costs_from_being_compared(tried: Tried) -> None:
    await tried.try_(metrics=["cost"], token_bound=1000, ends="by_hand")
    await tried.pass_(0)
    await tried.users(60)
    async with tried.database.write() as session:
        for arm, tokens in (("control", 900), ("treatment", 100)):
            packed = pack({"choices": [], "usage": {"total_tokens": tokens}})
            await session.execute(update(CallRow).where(CallRow.arm == arm).values(answer=packed))
    for number in range(60):
        await tried.assign(f"left-out-{number}", number % 2 == 1, sampled=False)
    await tried.pass_(200)
    found = await primary(tried)
    assert [(found[arm]["mean"], found[arm]["count"], found[arm]["without"]) for arm in "ab"] == [
        (900.0, 30, 0),
        (100.0, 30, 0),
    ]
    assert (found["comparable"], found["claims"]["b_better"]["proven"]) == (True, True)


async def test_a_unit_that_is_captured_and_says_no_tokens_is_still_without_a_cost(tried: Tried) -> None:
    await tried.try_(metrics=["cost"], ends="by_hand")
    await tried.pass_(0)
    await tried.users(4)
    async with tried.database.write() as session:
        await session.execute(update(UnitRow).values(sampled=False))  # it was drawn anew: its answers are stored
    await tried.pass_(200)
    found = await primary(tried)
    assert ([found[arm]["without"] for arm in "ab"], found["comparable"]) == ([2, 2], False)
