"""Rollouts as an operator opens and follows them: by the sidecar's control API, and by no other way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
from learning import DemoError

PLAN: dict[str, Any] = {
    "steps": [0.2, 0.5, 0.95],
    "min_units": 5,
    "min_time": "10s",
    "grace": "15s",
    "longest_session": "60s",
    "guardrails": {
        "failure": {"margin": 0.25},
        "latency": {"margin": 0.25, "bound": "60s"},
        "feedback": None,
        "reward": {"margin": 0.02},
    },
    "objective": "reward",
    "advance": "not_worse",
    "scoring": {"calls_per_hour": None},
}
"""The README says why these numbers."""

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Decision:
    """A decision about a rollout, as the sidecar has stored it.

    Attributes:
        at: when it was taken, Unix seconds.
    """

    at: float
    version: int
    action: str
    share: float
    reason: str
    evidence: dict[str, Any]

    @property
    def label(self) -> str:
        share = f" to {self.share:.0%}" if self.action in ("begin", "advance") else ""
        return f"version {self.version}: {self.action.replace('_', ' ')}{share}"


async def kept(sidecar: httpx.AsyncClient, version: int, within: float = 60) -> dict[str, Any]:
    """Waits until the register has a version and its weights, and keeps them; returns what is known of it.

    Raises:
        DemoError: they are not there in time.
    """
    deadline = time.monotonic() + within
    while not (answer := await sidecar.post(f"/versions/{version}/keep")).is_success:
        if time.monotonic() > deadline:
            raise DemoError(f"version {version} was not kept within {within:g} s: {answer.text}")
        await asyncio.sleep(_POLL_SECONDS)
    known: dict[str, Any] = answer.json()
    return known


async def roll_out(
    sidecar: httpx.AsyncClient,
    version: int,
    tell: Callable[[Decision], None],
    *,
    replace: bool = False,
    within: float = 1200,
) -> Decision:
    """Opens a rollout and returns the decision that ends it, or promotes the version.

    Args:
        tell: is called with each decision, once.
        replace: a version that is live goes back to production first.

    Raises:
        DemoError: it was not opened, or not decided in time.
    """
    opened = await sidecar.post("/rollouts", json={**PLAN, "version": version, "replace": replace})
    if opened.is_error:
        raise DemoError(f"no rollout of version {version}: {opened.text}")
    number, told = opened.json()["id"], 0
    deadline = time.monotonic() + within
    while True:
        seen = (await sidecar.get(f"/rollouts/{number}")).raise_for_status().json()
        for each in seen["decisions"][told:]:
            decision = _decision(version, each)
            tell(decision)
            if each["action"] in ("promote", "roll_back"):
                return decision
        told = len(seen["decisions"])
        if time.monotonic() > deadline:
            raise DemoError(f"rollout {number} of version {version} was not decided within {within:g} s: {seen}")
        await asyncio.sleep(_POLL_SECONDS)


def findings(decision: Decision) -> str:
    """The evidence of a decision, in a few lines."""
    evidence = decision.evidence
    units = evidence["units"]
    lines = [
        f"{decision.label}: {decision.reason}",
        f"  sessions: {units['treatment']} of the version, {units['control']} of production",
        f"  better by reward: {_claimed(evidence['objective'], 'better')}",
    ]
    for name, guardrail in evidence["guardrails"].items():
        lines.append(f"  harm by {name}: {_claimed(guardrail, 'harm')}")
    return "\n".join(lines)


def _claimed(measure: dict[str, Any], claim: str) -> str:
    if measure["difference"] is None:
        return "no session was compared"
    low, high = measure["interval"]
    found = measure[claim]
    return (
        f"{'PROVEN' if found['proven'] else 'not proven'}, log e {found['log_e']:.2f} of {found['needed']:.2f} needed; "
        f"difference {measure['difference']:+.2f}, in [{low:+.2f}, {high:+.2f}]"
    )


def _decision(version: int, seen: dict[str, Any]) -> Decision:
    return Decision(seen["at"], version, seen["action"], seen["share"], seen["reason"], seen["evidence"])
