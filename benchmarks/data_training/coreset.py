"""A part of the rows in the place of all: what a coreset keeps of distillation's gain."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from data_training import distil
from data_training.given import Figures, Given, spread, told
from data_training.rig import HELD_OUT, Rig

STRATEGIES = ("random", "hybrid", "loss_topk")
_SHARE = 0.3


async def run(given: Given, seed: int) -> dict[str, Any]:
    """Train on parts of the rows of `distil`, which runs first if it did not yet."""
    whole = given.known("distil", seed)
    if whole is None:
        whole = {"seed": seed, **await distil.run(given, seed)}
        given.keep("distil", seed, whole)
    assert given.teacher is not None
    figures: dict[str, Any] = {"before": whole["before"], "all": {"after": whole["after"], "trained": whole["trained"]}}
    for strategy in STRATEGIES:
        rig = Rig(given.folder("coreset", seed) / strategy, given.base, given.teacher, seed)
        rig.take_datasets(given.folder("distil", seed))
        data = rig.written("distil.yaml", {"coreset": {"strategy": strategy, "share": _SHARE, "seed": seed}})
        trained = rig.train(data)
        figures[strategy] = {"after": (await rig.measure()).reward, "trained": trained}
    return figures


def part(found: Sequence[Figures]) -> list[str]:
    """The page's part."""
    lines = [
        f"Coresets: the rows of the distillation above, and {_SHARE:.0%} of them by each strategy, each row once. The "
        "gain is that of the reward over the base model, as a share of the gain of all rows.",
        "",
        "| rows | " + " | ".join(f"seed {each['seed']}" for each in found) + " | mean | gain | training |",
        "|---|" + "---|" * (len(found) + 3),
    ]
    for name in ("all", *STRATEGIES):
        gains = [(each[name]["after"] - each["before"]) / (each["all"]["after"] - each["before"]) for each in found]
        rewards = [each[name]["after"] for each in found]
        seconds = spread((each[name]["trained"] for each in found), ".0f")
        lines.append(
            f"| {'all' if name == 'all' else f'`{name}`'} | {' | '.join(f'{reward:.2f}' for reward in rewards)} "
            f"| {spread(rewards)} | {fmean(gains):.0%} | {seconds} s |"
        )
    return [
        *lines,
        "",
        told(
            "coreset --teacher MODEL",
            f"Rewards are means over {HELD_OUT} held-out tasks. Training includes the start of the program, "
            "and the pass over all rows that measures losses and distances.",
        ),
    ]
