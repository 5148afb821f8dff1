"""Rows of a data set that are computed at once, and the tokens that this takes, with what pads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from slipstream.embedded.algorithm import DatasetAlgorithm
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.shared_prompts import ROUND
from slipstream.errors import ConfigError

_CPU_TOKENS = 1024
"""Tokens that a CPU computes together at most: more takes memory and is not faster."""


def rows_together(
    config: EngineConfig, algorithm: DatasetAlgorithm, longest: int, place: torch.device, shared: int | None = None
) -> int:
    """Return how many rows of a step are computed at once: a divisor of `buffer.train_batch_size`.

    Args:
        longest: tokens of the longest row.
        shared: tokens that all prompts begin with alike, where rows are packed, so that these are computed once a
            batch; None where each row is padded to the longest of its batch.

    Raises:
        ConfigError: KTO has less than two rows a step, or `train_batch_size` is a number without a fitting divisor.
    """
    batch, tokens = config.buffer.train_batch_size, config.trainer.max_token_len_per_gpu
    if place.type == "cpu":
        tokens = min(tokens, _CPU_TOKENS)
    least = 2 if algorithm == "kto" else 1
    divisors = [count for count in range(least, batch + 1) if batch % count == 0]
    if not divisors:
        raise ConfigError(f"buffer.train_batch_size: expected at least 2 for kto, found {batch}")
    return max(
        (count for count in divisors if tokens_together(longest, count, algorithm, shared) <= tokens),
        default=divisors[0],
    )


def batch_arguments(config: EngineConfig, together: int) -> dict[str, Any]:
    """Return the arguments of a trainer that computes so many rows of a step at once."""
    return {
        "per_device_train_batch_size": together,
        "gradient_accumulation_steps": config.buffer.train_batch_size // together,
    }


def padded_tokens(
    lengths: Sequence[int], order: Sequence[int], together: int, algorithm: DatasetAlgorithm, shared: int | None = None
) -> int:
    """Return the tokens that are computed, those that fill up shorter rows among them; both answers of a pair."""
    batches = (order[place : place + together] for place in range(0, len(order), together))
    if shared is not None:
        return sum(_rounded(shared + sum(lengths[row] - shared for row in batch)) for batch in batches)
    rows = sum(len(batch) * _rounded(max(lengths[row] for row in batch)) for batch in batches)
    return rows * (2 if algorithm == "dpo" else 1)


def tokens_together(longest: int, together: int, algorithm: DatasetAlgorithm, shared: int | None = None) -> int:
    """Return the most tokens that are computed at once."""
    if shared is not None:
        return _rounded(shared + together * (longest - shared))
    return together * _rounded(longest) * (2 if algorithm == "dpo" else 1)


def _rounded(length: int) -> int:
    return -(-length // ROUND) * ROUND
