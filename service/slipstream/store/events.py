"""Events about versions, each written to the outbox with the decision that it tells of.

They hold numbers, states and the decider's own words: nothing that was said in a conversation, and no name of a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import outbox
from slipstream.store.states import OPEN_EXPERIMENTS
from slipstream.store.tables.evaluations import EvaluationRow
from slipstream.store.tables.experiments import ExperimentDecisionRow, ExperimentRow
from slipstream.store.tables.rollouts import RolloutDecisionRow, RolloutRow
from slipstream.store.tables.serving import ServingRow
from slipstream.webhooks.events import EventType

_OF_DECISIONS = {
    "open": EventType.VERSION_CANDIDATE,
    "begin": EventType.ROLLOUT_STARTED,
    "advance": EventType.ROLLOUT_ADVANCED,
    "hold": EventType.ROLLOUT_HOLDING,
    "pause": EventType.ROLLOUT_PAUSED,
    "resume": EventType.ROLLOUT_RESUMED,
    "promote": EventType.ROLLOUT_PROMOTED,
    "roll_back": EventType.ROLLOUT_ROLLED_BACK,
    "abort": EventType.ROLLOUT_ABORTED,
    "replace": EventType.ROLLOUT_REPLACED,
}
"""The event of each kind of a decision, by the words of `rollouts.Verdict`."""


async def of_decision(session: AsyncSession, rollout: RolloutRow, decision: RolloutDecisionRow) -> None:
    """Tell of a decision about a rollout."""
    data = {
        "rollout": rollout.id,
        "version": rollout.version,
        "state": decision.state.value,
        "step": decision.step,
        "share": decision.share,
        "reason": decision.reason,
        "evidence": _in_short(decision.evidence),
    }
    await outbox.add(session, _OF_DECISIONS[decision.action], data, decision.at)


async def of_experiment(session: AsyncSession, experiment: ExperimentRow, decision: ExperimentDecisionRow) -> None:
    """Tell of a decision about an experiment that begins or ends it, or gives its version the traffic."""
    if decision.action == "begin":
        kind = EventType.EXPERIMENT_STARTED
    elif decision.action == "switch":
        kind = EventType.EXPERIMENT_SWITCHED
    elif decision.state not in OPEN_EXPERIMENTS:
        kind = EventType.EXPERIMENT_ENDED
    else:
        return
    data = {
        "experiment": experiment.id,
        "version": experiment.version,
        "state": decision.state.value,
        "share": decision.share,
        "winner": decision.winner,
        "rollout": experiment.rollout_id,
        "reason": decision.reason,
    }
    await outbox.add(session, kind, data, decision.at)


async def of_evaluation(session: AsyncSession, evaluation: EvaluationRow, now: float) -> None:
    """Tell that an evaluation has ended. Why it failed is not said: that can quote the suite's file."""
    result = evaluation.result or {}
    compared = result.get("against_production") or {}
    data = {
        "evaluation": evaluation.id,
        "version": evaluation.version,
        "suite": evaluation.suite,
        "state": evaluation.state.value,
        "verdict": compared.get("verdict"),
        "evidence": {
            "success_rate": result.get("version", {}).get("success_rate"),
            "difference": compared.get("difference"),
            "interval": compared.get("interval"),
        },
    }
    await outbox.add(session, EventType.EVALUATION_ENDED, data, now)


async def of_switch(session: AsyncSession, serving: ServingRow, now: float) -> None:
    """Tell that the kill switch was turned."""
    kind = EventType.SERVING_KILLED if serving.killed else EventType.SERVING_REVIVED
    await outbox.add(session, kind, {"version": serving.version, "share": serving.share, "epoch": serving.epoch}, now)


def is_of_rollout(evidence: Mapping[str, Any]) -> bool:
    """Return whether the evidence beside a rollout's decision is the rollout's: where an experiment gave its version
    the traffic, it is the experiment's report."""
    return {"units", "objective", "guardrails"} <= evidence.keys()


def _in_short(evidence: Mapping[str, Any]) -> dict[str, Any] | None:
    """The units, the objective, and the guardrails that were harmed; None for a decision without evidence."""
    if not is_of_rollout(evidence):
        return None
    objective = evidence["objective"]
    return {
        "units": evidence["units"],
        "objective": {
            "value": objective["value"],
            "difference": objective["difference"],
            "interval": objective["interval"],
            "better": objective["better"]["proven"],
        },
        "harmed": [name for name, one in evidence["guardrails"].items() if one["harm"]["proven"]],
    }
