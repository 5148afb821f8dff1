"""Data sets as a page has something to show of: a supervised one with erasures, and one of preferences."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from dataset_rows import dataset, provenance

from slipstream.datasets.folder import new_folder, remove_rows
from slipstream.datasets.row import Kind, Row, Source

HOSTILE = "<img src=x onerror=alert(6)>\u202e${alert(7)}"
"""A label and a model that agents may have named so."""

SESSIONS = 60
SHARE = 0.2


def make_datasets(directory: Path, odd: str = HOSTILE) -> None:
    """Make `support`, of production's answers and the policy's, and `preferred`, of pairs of runs.

    Args:
        odd: the name of one of the labels, and of one of the models.
    """
    draw = random.Random(7)
    answers: list[dict[str, Any]] = [
        {"production": {"min_reward": 0.5, "liked": True}},
        {"policy": {"best_of_group": 1}},
    ]
    support = dataset(sources=answers, held_out={"share": SHARE}, dedup={"near": 0.85})
    with new_folder(directory, support) as made:
        for number in range(3 * SESSIONS):
            made.add("held_out" if number // 3 % 5 == 0 else "train", _row(Kind.SFT, number, draw, odd))
        for reason, rows in (("duplicate", 24), ("no_reward", 11), ("near_duplicate", 7), ("empty_answer", 2)):
            made.drop(reason, rows)
        made.publish(_about(["email", "card_number"], kept=True))
    remove_rows(directory / support.name, lambda origin: not origin["task"].startswith("default/session-4-"))
    pairs = dataset(Kind.PREFERENCE, name="preferred", pairs={"from": ["runs"], "min_margin": 0.2}, format="openai")
    with new_folder(directory, pairs) as made:
        for number in range(SESSIONS):
            made.add("train", _row(Kind.PREFERENCE, number, draw, odd))
        made.drop("no_pair", 31)
        made.publish(_about([], kept=False))


def _row(kind: Kind, number: int, draw: random.Random, odd: str) -> Row:
    reward = min(1.0, max(0.0, draw.gauss(0.8, 0.15)))
    by_policy = kind is Kind.PREFERENCE or number % 3 == 0
    origin = provenance(
        number,
        task=f"default/session-{number // 3}-{number}",
        session=f"default/session-{number // 3}",
        tenant="default",
        source=Source.RUNS if kind is Kind.PREFERENCE else Source.POLICY if by_policy else Source.PRODUCTION,
        models=(f"version:{4 + number % 3}",) if by_policy else ("gpt-4o" if number % 20 else odd,),
        rewards=(reward, reward * draw.random()) if kind is Kind.PREFERENCE else (reward,),
        labels=("refund",) if number % 4 else ("parcel", odd),
    )
    if kind is Kind.PREFERENCE:
        origin = replace(origin, models=origin.models * 2)
    return Row(
        kind,
        [{"role": "user", "content": f"Where is order {number}? " * draw.randint(1, 12)}],
        {"role": "assistant", "content": f"Order {number} is on its way."},
        origin,
        rejected={"role": "assistant", "content": "I do not know."} if kind is Kind.PREFERENCE else None,
    )


def _about(redacted: list[str], *, kept: bool) -> dict[str, Any]:
    """As an export says it."""
    return {
        "slipstream": "0.0.0",
        "redacted": redacted,
        "held_out": {"by": "session", "share": SHARE, "kept_from_reinforcement_learning": kept},
        "scoring_failed": 0,
        "reward_range": [0.0, 1.0],
    }
