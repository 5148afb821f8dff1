"""Choosing the next token, and the log-probability that training will need."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sampling:
    """What one request may choose; the temperature is the configuration's.

    Args:
        max_tokens: the response ends after this many tokens at the latest.
        top_p: sample from the smallest set of tokens that has this much probability; 1 samples from all.
        top_logprobs: how many of the likeliest tokens to report at each position.
        seed: makes the response repeatable.
    """

    max_tokens: int
    top_p: float = 1.0
    top_logprobs: int = 0
    seed: int | None = None


@dataclass(frozen=True)
class Sampled:
    """One token; `logprob` and `top` are natural logs under softmax(logits / temperature), before `top_p` cuts."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


def sample(
    logits: Tensor, temperature: float, rows: Sequence[Sampling], sources: Sequence[random.Random]
) -> list[Sampled]:
    """Samples one token for each row.

    A row draws one uniform number from its own source, so that a seeded response does not depend on its neighbours.
    Temperature 0 takes the likeliest token, with the log-probability that it has at temperature 1.

    Args:
        logits: shape (rows, vocabulary).
    """
    logprobs = torch.log_softmax(logits.float() / (temperature or 1.0), dim=-1)
    if temperature == 0:
        chosen = logprobs.argmax(dim=-1)
    else:
        # double precision: over 50,000 tokens the rounding of a float sum would be seen in the unlikely ones
        mass = logprobs.double().exp()
        for index, row in enumerate(rows):
            if row.top_p < 1:
                mass[index] = _nucleus(mass[index], row.top_p)
        cumulative = mass.cumsum(dim=-1)
        draws = torch.tensor([source.random() for source in sources], dtype=torch.float64)[:, None]
        chosen = torch.searchsorted(cumulative, draws * cumulative[:, -1:], right=True).squeeze(-1)
        chosen.clamp_(max=logits.shape[-1] - 1)
    chosen_logprobs = logprobs.gather(-1, chosen[:, None]).squeeze(-1).tolist()
    return [
        Sampled(token_id, chosen_logprobs[index], _top(logprobs[index], rows[index].top_logprobs))
        for index, token_id in enumerate(chosen.tolist())
    ]


def _nucleus(mass: Tensor, top_p: float) -> Tensor:
    """Keeps the likeliest tokens until their sum reaches top_p (Holtzman et al., arXiv:1904.09751)."""
    ordered, order = mass.sort(descending=True)
    kept = ordered.cumsum(dim=-1) - ordered < top_p * ordered.sum()
    return torch.zeros_like(mass).scatter_(-1, order[kept], ordered[kept])


def _top(logprobs: Tensor, count: int) -> tuple[tuple[int, float], ...]:
    if count == 0:
        return ()
    values, ids = logprobs.topk(count)
    return tuple(zip(ids.tolist(), values.tolist(), strict=True))
