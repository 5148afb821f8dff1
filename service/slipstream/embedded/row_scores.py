"""The policy's view of training rows, from one forward pass each: the loss of the answer, and a pooled hidden state.

The embedding is RDS+ of H. Ivison et al., arXiv 2503.01807: the mean of the last hidden states of prompt and answer,
weighted by position, since only late tokens have seen the whole row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from slipstream.datasets.coreset import Floats, RowScores

TokenRow = tuple[Sequence[int], Sequence[int]]
"""Token ids of a prompt and of its answer, both with at least one, as they are trained on."""

_SCORED_AT_ONCE = 512
"""Tokens whose logits are turned into float32 at a time: 100 MB with a vocabulary of 49,152."""


def row_scores(
    model: PreTrainedModel, rows: Sequence[TokenRow], done: Callable[[int], None] | None = None
) -> RowScores:
    """Compute losses and embeddings. One row after the other: on a CPU a batch is no faster, and costs its padding.

    Args:
        model: on any device; its mode of training is left as it was.
        rows: each no longer than the model's context.
        done: called with the number of rows that are done, after each.

    Returns:
        Losses of shape (n,) in nats a token, and embeddings of shape (n, hidden size).

    Raises:
        ValueError: a prompt or an answer has no token; names the row, counted from 0.
    """
    losses = np.empty(len(rows), dtype=np.float32)
    embeddings = np.empty((len(rows), model.config.get_text_config().hidden_size), dtype=np.float32)
    with _Watched(model) as watched:
        for place, (prompt, answer) in enumerate(rows):
            if not len(prompt) or not len(answer):
                raise ValueError(
                    f"row {place}: expected tokens in prompt and answer, found {len(prompt)}, {len(answer)}"
                )
            losses[place], embeddings[place] = watched.score(prompt, answer)
            if done is not None:
                done(place + 1)
    return RowScores(losses, embeddings)


def pooled(model: PreTrainedModel, texts: Sequence[Sequence[int]]) -> Floats:
    """Compute the embeddings of texts that have no answer, such as descriptions of tools.

    Args:
        texts: token ids, at least one each.

    Returns:
        Shape (n, hidden size).
    """
    with _Watched(model) as watched:
        return np.stack([watched.embed(ids) for ids in texts])


class _Watched:
    """A model whose last hidden states are kept beside its logits.

    A hook on the decoder takes them: `output_hidden_states` would keep those of each layer. The logits are computed of
    the answer alone, by the model's own head, which may scale them.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model: Any = model
        self._hidden: Tensor | None = None

    def __enter__(self) -> _Watched:
        self._trained = self._model.training
        self._model.eval()
        self._hook = self._model.base_model.register_forward_hook(self._keep)
        return self

    def __exit__(self, *error: object) -> None:
        self._hook.remove()
        self._model.train(self._trained)
        self._hidden = None

    @torch.inference_mode()
    def score(self, prompt: Sequence[int], answer: Sequence[int]) -> tuple[float, Floats]:
        logits = self._logits([*prompt, *answer], len(answer) + 1)[:-1]
        wanted = torch.tensor(answer, device=logits.device)
        parts = zip(torch.split(logits, _SCORED_AT_ONCE), torch.split(wanted, _SCORED_AT_ONCE), strict=True)
        total = sum(float(cross_entropy(each.float(), ids, reduction="sum")) for each, ids in parts)
        return total / len(answer), self._pooled()

    @torch.inference_mode()
    def embed(self, ids: Sequence[int]) -> Floats:
        self._logits(ids, 1)
        return self._pooled()

    def _logits(self, ids: Sequence[int], kept: int) -> Tensor:
        inputs = torch.tensor([list(ids)], device=self._model.device)
        logits: Tensor = self._model(input_ids=inputs, logits_to_keep=kept, use_cache=False).logits[0]
        return logits

    def _pooled(self) -> Floats:
        assert self._hidden is not None
        hidden = self._hidden[0].float()
        weights = torch.arange(1, len(hidden) + 1, device=hidden.device, dtype=torch.float32)
        mean = (weights / weights.sum()) @ hidden
        return np.asarray(mean.cpu().numpy(), dtype=np.float32)

    def _keep(self, module: Any, inputs: Any, output: Any) -> None:
        self._hidden = output.last_hidden_state
