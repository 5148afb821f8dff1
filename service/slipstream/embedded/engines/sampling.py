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
    # On a GPU all rows together. On a CPU one at a time, which is as fast as memory: the intermediate results of all
    # rows are so large that the allocator fetches them afresh from the kernel for each token, which takes longer than
    # the arithmetic.
    together = len(rows) if logits.is_cuda else 1
    return [
        sampled
        for start in range(0, len(rows), together)
        for sampled in _sample(
            logits[start : start + together],
            temperature,
            rows[start : start + together],
            sources[start : start + together],
        )
    ]


def _sample(
    logits: Tensor, temperature: float, rows: Sequence[Sampling], sources: Sequence[random.Random]
) -> list[Sampled]:
    logprobs = torch.log_softmax(logits.float() / (temperature or 1.0), dim=-1)
    if temperature == 0:
        tokens = logprobs.argmax(dim=-1)
    else:
        tokens = _draw(logprobs, [row.top_p for row in rows], [source.random() for source in sources])
    chosen = logprobs.gather(1, tokens[:, None])[:, 0].tolist()
    tops = _top(logprobs, [row.top_logprobs for row in rows])
    return [Sampled(*each) for each in zip(tokens.tolist(), chosen, tops, strict=True)]


def _draw(logprobs: Tensor, top_p: Sequence[float], draws: Sequence[float]) -> Tensor:
    """The token of each row at its draw in [0, 1) of the cumulative distribution, shape (rows,)."""
    # double precision: over 50,000 tokens the rounding of a float sum would be seen in the unlikely ones
    mass = logprobs.double().exp()
    places = _place(mass, torch.tensor(draws, dtype=torch.double, device=mass.device))
    for row, share in enumerate(top_p):
        if share < 1:
            kept, tokens = _nucleus(mass[row], share)
            places[row] = tokens[_place(kept[None], kept.new_tensor([draws[row]]))[0]]
    return places


def _place(mass: Tensor, draws: Tensor) -> Tensor:
    cumulative = mass.cumsum(dim=-1)
    found = torch.searchsorted(cumulative, draws[:, None] * cumulative[:, -1:], right=True)
    return found[:, 0].clamp_(max=mass.shape[1] - 1)


def _nucleus(mass: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """The likeliest tokens until their sum reaches top_p (Holtzman et al., arXiv:1904.09751): their mass, their ids."""
    aim = top_p * mass.sum()
    ordered, order = mass.topk(min(_LIKELIEST, len(mass)))
    if ordered.sum() < aim:
        ordered, order = mass.sort(descending=True)
    kept = ordered.cumsum(dim=-1) - ordered < aim
    return ordered[kept], order[kept]


def _top(logprobs: Tensor, counts: Sequence[int]) -> list[tuple[tuple[int, float], ...]]:
    most = max(counts)
    if most == 0:
        return [()] * len(counts)
    values, ids = logprobs.topk(most)
    rows = zip(ids.tolist(), values.tolist(), counts, strict=True)
    return [tuple(zip(row_ids[:count], row_values[:count], strict=True)) for row_ids, row_values, count in rows]
