"""A program that gives a checkpoint of verl's Trainer an optimizer that starts afresh, with other settings.

    python fresh_optimizer.py ACTOR_DIRECTORY '{"lr": 1e-06, "weight_decay": 0.01, "betas": [0.9, 0.999]}'

A Trainer that resumes takes all of the optimizer from the checkpoint: the moments, and also the learning rate, weight
decay and betas; and of the schedule its place and its base rate (`torch.optim.lr_scheduler.LambdaLR.state_dict`). After
a move of a checkpoint between jobs, reinforcement learning would go on with supervised training's learning rate, twenty
times its own.

It runs in the environment of Trinity-RFT, whose torch wrote the files, and imports nothing of Slipstream.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def reset(actor: Path, settings: Mapping[str, Any]) -> int:
    """Reset optimizer and schedule of each rank in `actor`, the folder `global_step_N/actor`.

    A file is replaced as one act, and resetting twice is the same as once.

    Args:
        settings: of each group of parameters, by their names in `torch.optim.AdamW`.

    Returns:
        The number of ranks.
    """
    import torch

    optimizers = sorted(actor.glob("optim_world_size_*_rank_*.pt"))
    for path in optimizers:
        saved = torch.load(path, map_location="cpu", weights_only=False, mmap=True)
        groups = [{**group, **settings} for group in saved["param_groups"]]
        _replace(path, {"state": {}, "param_groups": groups})
    for path in sorted(actor.glob("extra_state_world_size_*_rank_*.pt")):
        saved = torch.load(path, map_location="cpu", weights_only=False)
        _replace(path, {**saved, "lr_scheduler": None})  # verl then keeps the one that it has made
    return len(optimizers)


def _replace(path: Path, content: Mapping[str, Any]) -> None:
    import torch

    partial = path.with_name(f".{path.name}.partial")
    torch.save(dict(content), partial)
    os.replace(partial, path)


def main() -> int:
    settings = json.loads(sys.argv[2])
    if "betas" in settings:
        settings["betas"] = tuple(settings["betas"])
    if not reset(Path(sys.argv[1]), settings):
        print(f"{sys.argv[1]}: expected optim_world_size_*_rank_*.pt, found none", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
