"""Several answers as one sequence, so that what their prompts share is computed once.

The runs of a group share their prompt, which is usually longer than the answers, and the prompt of an agent's next
step is mostly that of its last one with more behind it. Here the rows of a batch become a tree: where two of them
begin alike they have the same tokens, and from where they differ each has its own. A token sees those before it in
its own rows, at the positions that it would have alone, so the probabilities are those of the separate sequences
(prefix sharing as in Hydragen, arXiv:2402.05099, here for training).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

Row = tuple[Tensor, Tensor]
"""The tokens of a prompt and of its answer, at least one of each."""

_ROUND = 128  # tokens: see `Pack`
_SCORED_AT_ONCE = 128  # answer tokens: a float for each word of the vocabulary, in several copies at backward
_WORTH = 32  # shared tokens; for fewer, the attention over what is not shared costs more than reading them again


@dataclass(frozen=True)
class Pack:
    """One sequence of L tokens, in which S answer tokens are predicted, of which the first `answered` are meant.

    input_ids, position_ids: (1, L). attention_mask: (1, 1, L, L), True where a token may look, or None where that is
    simply backwards. scored: (S,), where in the sequence each answer token is predicted, row after row.

    L and S are rounded up to whole multiples of 128 with tokens that nothing looks at: oneDNN, which computes in
    bfloat16, keeps code and memory for each shape that it meets, up to 1024 of them. With lengths as they came a
    Trainer of a tiny model grew by 50 MiB a step.
    """

    input_ids: Tensor
    position_ids: Tensor
    attention_mask: Tensor | None
    scored: Tensor
    answered: int

    def answer_logits(self, model: Any) -> Tensor:
        """Run the model over the sequence. Returns the logits of the answer tokens, (answered, words)."""
        logits: Tensor = model(
            input_ids=self.input_ids,
            position_ids=self.position_ids,
            attention_mask=self.attention_mask,
            logits_to_keep=self.scored,
            use_cache=False,
        ).logits[0, : self.answered]
        return logits


def taught_loss(logits: Tensor, answers: Tensor) -> Tensor:
    """Return the negative log-probability of answer tokens, summed over them.

    Args:
        logits: (answered, words), as `Pack.answer_logits` returns them.
        answers: (answered,), row after row.
    """
    parts = zip(torch.split(logits, _SCORED_AT_ONCE), torch.split(answers, _SCORED_AT_ONCE), strict=True)
    return torch.stack([checkpoint(_part_of_loss, *part, use_reentrant=False) for part in parts]).sum()


def _part_of_loss(logits: Tensor, answers: Tensor) -> Tensor:
    return functional.cross_entropy(logits.float(), answers, reduction="sum")


def pack(rows: Sequence[Row], multiple: int = _ROUND) -> Pack:
    """Packs rows, which are on one device, with L and S rounded up to multiples of so many tokens; each row
    shares what it begins with like the one before it, so give them sorted, as `split` does.
    """
    ids, positions, scored = [], [], []
    size, backwards = 0, True
    device = rows[0][0].device
    before = path = torch.tensor([], dtype=torch.long, device=device)  # the row before, and where its tokens are
    places = []
    for prompt, answer in rows:
        row = torch.cat([prompt, answer])
        shared = _shared(before, row)
        backwards = backwards and shared == size
        own = torch.arange(size, size + len(row) - shared, device=device)
        path = torch.cat([path[:shared], own])
        places.append((own, path[:shared]))
        scored.append(path[len(prompt) - 1 : -1])
        ids.append(row[shared:])
        positions.append(torch.arange(shared, len(row), device=device))
        size += len(own)
        before = row
    rest = torch.arange(size, size + -size % multiple, device=device)
    places.append((rest, rest[:0]))
    answered = sum(map(len, scored))
    return Pack(
        input_ids=torch.cat([*ids, torch.zeros_like(rest)])[None],
        position_ids=torch.cat([*positions, rest - size])[None],
        attention_mask=None if backwards else _mask(size + len(rest), places),
        scored=torch.cat([*scored, torch.zeros(-answered % multiple, dtype=torch.long, device=device)]),
        answered=answered,
    )


def split(rows: Sequence[tuple[NDArray[np.int32], NDArray[np.int32]]], most_tokens: int) -> list[list[int]]:
    """Split the rows into packs, in the order in which they share the most.

    Rows of one prompt go together, and so do those of prompts that share enough, as long as a pack has at most
    `most_tokens` tokens and as many answer tokens.
    """
    whole = [np.concatenate(row) for row in rows]
    packs: list[list[int]] = []
    size = answers = 0
    # big-endian bytes sort as the token ids do, so that each row comes behind the one that it shares the most with
    for index in sorted(range(len(rows)), key=lambda index: whole[index].astype(">i4").tobytes()):
        prompt, answer = rows[index]
        shared = 0
        if packs:
            before = packs[-1][-1]
            shared = _shared(torch.from_numpy(whole[before]), torch.from_numpy(whole[index]))
            if shared < _WORTH and not np.array_equal(prompt, rows[before][0]):
                shared = 0
        own = len(whole[index]) - shared
        answers += len(answer)
        size += own
        if not shared or max(size, answers) > most_tokens:
            packs.append([])
            size, answers = len(whole[index]), len(answer)
        packs[-1].append(index)
    return packs


def _shared(one: Tensor, other: Tensor) -> int:
    """Return how many tokens at their start are equal."""
    length = min(len(one), len(other))
    differs = (one[:length] != other[:length]).nonzero()
    return int(differs[0]) if len(differs) else length


def _mask(size: int, places: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """`places`: of each row its own tokens, and those that it has from rows before it."""
    mask = torch.zeros(size, size, dtype=torch.bool, device=places[0][0].device)
    for own, ancestors in places:
        mask[own[:, None], ancestors] = True
        mask[own[:, None], own] = mask.new_ones(len(own), len(own)).tril()
    return mask[None, None]
