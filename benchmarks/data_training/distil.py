"""Distillation: the base model is taught what a teacher, as production, answered."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from data_training.given import Figures, Given, told
from data_training.rig import HELD_OUT, HERE, Rig, captured_tasks


async def run(given: Given, seed: int) -> dict[str, Any]:
    """Capture, export, train, and measure what is served."""
    assert given.teacher is not None
    rig = Rig(given.folder("distil", seed), given.base, given.teacher, seed)
    before = await rig.measure()
    began = time.monotonic()
    production = await rig.capture(captured_tasks(seed, given.calls))
    exported = rig.export(HERE / "distil.yaml")
    trained = rig.train(HERE / "distil.yaml")
    whole = time.monotonic() - began
    return {
        "calls": given.calls,
        "production": production.reward,
        "before": before.reward,
        "after": (await rig.measure()).reward,
        "rows": rig.rows("distil"),
        "exported": exported,
        "trained": trained,
        "whole": whole,
    }


def part(found: Sequence[Figures]) -> list[str]:
    """The page's part."""
    return [
        f"Distillation: supervised training of the base model on {found[0]['calls']} captured answers of a teacher "
        "(the last version of a demo), those with a reward of at least 0.8, each once.",
        "",
        "| seed | production | before | after | rows | export | training | from the first call to the version |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {each['seed']} | {each['production']:.2f} | {each['before']:.2f} | {each['after']:.2f} "
            f"| {each['rows']} | {each['exported']:.0f} s | {each['trained']:.0f} s | {each['whole'] / 60:.1f} min |"
            for each in found
        ),
        "",
        told("distil --teacher MODEL", f"Rewards are means over {HELD_OUT} held-out tasks."),
    ]
