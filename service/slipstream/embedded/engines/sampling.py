"""Choosing the next token, and the log-probability that training will need."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from slipstream.embedded.engines.engine import Sampled, Sampling

_LIKELIEST = 4096  # the usual nucleus is among them, and sorting the whole vocabulary takes some milliseconds a token


def sample(
    logits: Tensor, temperature: float, rows: Sequence[Sampling], sources: Sequence[random.Random]
) -> list[Sampled]:
    """Samples one token for each row.

    A row draws one uniform number from its own source, so that a seeded response does not depend on its neighbours.
    Temperature 0 takes the likeliest token, with the log-probability that it has at temperature 1.

    Args:
        logits: shape (rows, vocabulary).
    """
    return [
        _sample(row_logits, temperature, row, source)
        for row_logits, row, source in zip(logits, rows, sources, strict=True)
    ]


def _sample(logits: Tensor, temperature: float, row: Sampling, source: random.Random) -> Sampled:
    """One row at a time, because this is as fast as memory: the intermediate results of all rows together are so large
    that the allocator fetches them afresh from the kernel for each token, which takes longer than the arithmetic."""
    logprobs = torch.log_softmax(logits.float() / (temperature or 1.0), dim=-1)
    token_id = int(logprobs.argmax()) if temperature == 0 else _draw(logprobs, row.top_p, source.random())
    return Sampled(token_id, float(logprobs[token_id]), _top(logprobs, row.top_logprobs))


def _draw(logprobs: Tensor, top_p: float, draw: float) -> int:
    """The token at `draw` in [0, 1) of the cumulative distribution."""
    # double precision: over 50,000 tokens the rounding of a float sum would be seen in the unlikely ones
    mass = logprobs.double().exp()
    tokens = None
    if top_p < 1:
        mass, tokens = _nucleus(mass, top_p)
    cumulative = mass.cumsum(dim=-1)
    place = torch.searchsorted(cumulative, draw * cumulative[-1:], right=True).clamp_(max=len(cumulative) - 1)
    return int(place if tokens is None else tokens[place])


def _nucleus(mass: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """The likeliest tokens until their sum reaches top_p (Holtzman et al., arXiv:1904.09751): their mass, their ids."""
    aim = top_p * mass.sum()
    ordered, order = mass.topk(min(_LIKELIEST, len(mass)))
    if ordered.sum() < aim:
        ordered, order = mass.sort(descending=True)
    kept = ordered.cumsum(dim=-1) - ordered < aim
    return ordered[kept], order[kept]


def _top(logprobs: Tensor, count: int) -> tuple[tuple[int, float], ...]:
    if count == 0:
        return ()
    values, ids = logprobs.topk(count)
    return tuple(zip(ids.tolist(), values.tolist(), strict=True))
