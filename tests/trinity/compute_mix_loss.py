"""Runs in Trinity's environment: the loss that its `mix` gives to the step on standard input.

The step is JSON: mu, and of each row its log-probabilities, those at sampling, its advantage, and whether it is of the
data set.
"""

from __future__ import annotations

import json
import sys

import torch
from torch.nn.utils.rnn import pad_sequence
from trinity.algorithm import POLICY_LOSS_FN


def padded(rows: list[list[float]]) -> torch.Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


if __name__ == "__main__":
    mu, rows = json.load(sys.stdin)
    expert = torch.tensor([row["taught"] for row in rows])
    loss = POLICY_LOSS_FN.get("mix")(
        mu=mu, clip_range=0.2, use_dynamic_bsz=False, ppo_mini_batch_size=len(rows),
        ppo_micro_batch_size_per_gpu=len(rows), train_batch_size_usual=int((~expert).sum()),
        train_batch_size_expert=int(expert.sum()),
    )  # fmt: skip
    value, metrics = loss(
        padded([row["logprobs"] for row in rows]),
        padded([row["sampled"] for row in rows]),
        padded([[1.0] * len(row["logprobs"]) for row in rows]),
        padded([[row["advantage"]] * len(row["logprobs"]) for row in rows]),
        expert,
    )
    print(json.dumps({"loss": float(value), **metrics}))
