"""Several completions of one prompt as one sequence, so that the prompt is computed once.

The runs of a group share their prompt, which is usually longer than the answers: 8 answers of 25 tokens to a prompt of
60 are 680 tokens one by one, and 260 tokens packed. The sequence is the prompt and then the completions; each
completion sees the prompt and itself, at the positions that it would have alone, so the probabilities are those of the
separate sequences (prefix sharing as in Hydragen, arXiv:2402.05099, here for training).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pack:
    """One sequence of L tokens, of which S are completion tokens.

    input_ids, position_ids: (1, L). attention_mask: (1, 1, L, L), True where a token may look, or None where that is
    simply backwards. scored: (S,), where in the sequence each completion token is predicted, in order.
    """

    input_ids: Tensor
    position_ids: Tensor
    attention_mask: Tensor | None
    scored: Tensor


def pack(prompt: Tensor, completions: Sequence[Tensor]) -> Pack:
    """Packs completions, each of at least one token, behind their prompt, of at least one token."""
    start = len(prompt)
    lengths = [len(completion) for completion in completions]
    positions, scored = [torch.arange(start)], []
    first = start
    for length in lengths:
        positions.append(torch.arange(start, start + length))
        # the first token is predicted at the prompt's end, each later one at its predecessor
        scored += [torch.tensor([start - 1]), torch.arange(first, first + length - 1)]
        first += length
    device = prompt.device
    return Pack(
        input_ids=torch.cat([prompt, *completions])[None],
        position_ids=torch.cat(positions)[None].to(device),
        attention_mask=_mask(start, lengths).to(device) if len(lengths) > 1 else None,
        scored=torch.cat(scored).to(device),
    )


def split(prompt_length: int, lengths: Sequence[int], most_tokens: int) -> list[list[int]]:
    """Which completions go into which pack, in order, such that a pack of more than one has at most `most_tokens`."""
    packs: list[list[int]] = []
    size = 0
    for index, length in enumerate(lengths):
        if not packs or size + length > most_tokens:
            packs.append([])
            size = prompt_length
        packs[-1].append(index)
        size += length
    return packs


def _mask(start: int, lengths: Sequence[int]) -> Tensor:
    owner = torch.repeat_interleave(torch.tensor([start, *lengths]))  # 0 for the prompt, then 1, 2, ...
    order = torch.arange(len(owner))
    own_or_prompt = (owner == owner[:, None]) | (owner == 0)
    return (own_or_prompt & (order <= order[:, None]))[None, None]
