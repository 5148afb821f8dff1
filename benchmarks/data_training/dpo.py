"""Preferences: the base model's own better answers to a question are preferred to its worse ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from data_training.given import Figures, Given, told
from data_training.rig import HELD_OUT, HERE, Rig, captured_tasks

_GROUPS = 48


async def run(given: Given, seed: int) -> dict[str, Any]:
    """Have the policy answer in groups, export pairs, train, and measure what is served."""
    rig = Rig(given.folder("dpo", seed), given.base, given.base, seed)
    before = await rig.measure()
    began = time.monotonic()
    await rig.groups(captured_tasks(seed, _GROUPS))
    exported = rig.export(HERE / "dpo.yaml", sidecar=HERE / "groups.yaml")
    trained = rig.train(HERE / "dpo.yaml", sidecar=HERE / "groups.yaml")
    whole = time.monotonic() - began
    metrics = rig.trained_on()["metrics"]
    return {
        "before": before.reward,
        "after": (await rig.measure()).reward,
        "rows": rig.rows("pairs"),
        "exported": exported,
        "trained": trained,
        "whole": whole,
        **{name: metrics.get(name) for name in ("chosen_log_ratio", "rejected_log_ratio")},
    }


def part(found: Sequence[Figures]) -> list[str]:
    """The page's part."""
    return [
        f"DPO on pairs of the base model's own answers: {_GROUPS} questions, eight answers each, up to three pairs a "
        "question, each once. The last two columns are log-probabilities of the chosen and the rejected answers "
        "against the model before, in nats an answer, as means over the last ten steps: 0 is as likely as before.",
        "",
        "| seed | before | after | pairs | export | training | from call to version | chosen | rejected |",
        "|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {each['seed']} | {each['before']:.2f} | {each['after']:.2f} | {each['rows']} "
            f"| {each['exported']:.0f} s | {each['trained']:.0f} s | {each['whole'] / 60:.1f} min "
            f"| {each['chosen_log_ratio']:+.2f} | {each['rejected_log_ratio']:+.2f} |"
            for each in found
        ),
        "",
        told("dpo", f"Rewards are means over {HELD_OUT} held-out tasks."),
    ]
