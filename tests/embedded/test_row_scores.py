"""Losses and embeddings of training rows by a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from slipstream.embedded.row_scores import pooled, row_scores

pytestmark = pytest.mark.slow


@torch.no_grad()
def test_losses_and_embeddings_are_the_model_s_own(tiny_model: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32).train()
    rows = [([5, 6, 7], [8, 9]), ([5], [300]), (list(range(3, 40)), list(range(40, 700)))]
    seen: list[int] = []
    found = row_scores(model, rows, seen.append)

    assert seen == [1, 2, 3]
    assert model.training
    model.eval()
    for (prompt, answer), loss, embedding in zip(rows, found.losses, found.embeddings, strict=True):
        ids = torch.tensor([[*prompt, *answer]])
        labels = torch.tensor([[-100] * len(prompt) + answer])
        output = model(input_ids=ids, labels=labels, output_hidden_states=True)
        weights = torch.arange(1, ids.shape[1] + 1).float()
        expected = (weights[:, None] * output.hidden_states[-1][0]).sum(0) / weights.sum()

        assert loss == pytest.approx(float(output.loss), abs=1e-4)
        assert np.allclose(embedding, expected.detach().numpy(), atol=1e-4)
    assert np.allclose(pooled(model, [[5, 6, 7, 8, 9]])[0], found.embeddings[0], atol=1e-5)


def test_a_row_without_an_answer_is_named(tiny_model: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    with pytest.raises(ValueError, match="row 1: expected tokens in prompt and answer, found 2, 0"):
        row_scores(model, [([1], [2]), ([1, 2], [])])
