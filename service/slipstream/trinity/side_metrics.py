"""Metrics of a side job, from the files that Trinity-RFT writes for TensorBoard."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

_LAST = 10
"""Steps that a metric of the end is the mean of: one step's batch says little."""

_NAMES = {
    "actor/sft_loss": "loss",
    "actor/dpo_loss": "loss",
    "actor/chosen_reward": "chosen_reward",
    "actor/rejected_reward": "rejected_reward",
    "actor/accuracy_mean": "accuracy",
    "actor/grad_norm": "grad_norm",
}


def read_metrics(folder: Path) -> dict[str, float]:
    """Return the means over the last ten steps by their names in `trained_on.json`, and the loss of the first step.

    None are returned where TensorBoard is not installed, or another monitor is configured.
    """
    try:
        from tensorboard.backend.event_processing.event_multiplexer import (  # type: ignore[import-untyped]
            EventMultiplexer,
        )
    except ImportError:
        return {}
    found = EventMultiplexer().AddRunsFromDirectory(str(folder))
    found.Reload()
    metrics: dict[str, float] = {}
    for tag, name in _NAMES.items():
        values: dict[int, float] = {}  # by step: of a step that was done again after a kill the last counts
        for run, kinds in found.Runs().items():
            if tag in kinds["scalars"]:
                values |= {event.step: event.value for event in found.Scalars(run, tag)}
        finite = [values[step] for step in sorted(values) if math.isfinite(values[step])]
        if finite:
            metrics[name] = statistics.fmean(finite[-_LAST:])
            if name == "loss":
                metrics["first_loss"] = finite[0]
    return metrics
