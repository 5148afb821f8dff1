"""The reward function that sidecar.yaml names: it rates one answer of the policy model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from slipstream.rewards import Reward
from slipstream.trajectory import Run

WEIGHTS = {"called": 0.2, "vendor": 0.4, "total": 0.4}


def score(run: Run) -> Reward:
    """The reward of one run, from 0 to 1, with its parts. `run.metadata` is what the agent sent with its call."""
    return Reward(*graded(run.tool_calls, run.metadata["reference"]))


def graded(tool_calls: Sequence[Mapping[str, Any]], reference: Mapping[str, Any]) -> tuple[float, dict[str, float]]:
    """The reward of tool calls in OpenAI's form, and its parts.

    A part of the way is worth a part of the reward: the policy can only learn from answers that differ.
    """
    booked = booking(tool_calls)
    parts = {
        "called": float(booked is not None),
        "vendor": float(booked is not None and booked.get("vendor") == reference["vendor"]),
        "total": float(booked is not None and booked.get("total") == reference["total"]),
    }
    return sum(WEIGHTS[name] * value for name, value in parts.items()), parts


def booking(tool_calls: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The arguments of the one call of book_invoice; None where the model made another call, or none."""
    if [call["function"]["name"] for call in tool_calls] != ["book_invoice"]:
        return None
    try:
        arguments = json.loads(tool_calls[0]["function"]["arguments"])
    except ValueError:
        return None
    return arguments if isinstance(arguments, dict) else None
