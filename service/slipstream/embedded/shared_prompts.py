"""TRL's SFTTrainer, which computes what the rows of a batch begin with alike once, and scores only answers.

An application's rows share their system message and their tools, which are usually longer than question and answer
together. TRL's own way computes them for each row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from trl.trainer.sft_trainer import SFTTrainer

from slipstream.embedded.packing import pack, taught_loss

NO_LOSS = -100
"""A label at which nothing is learned."""

ROUND = 64
"""Tokens that the length of a batch is a multiple of, padded or packed: oneDNN keeps code and memory for each shape."""


class SharedPromptsTrainer(SFTTrainer):
    """SFTTrainer for a model that attends to exactly what a mask allows. The loss is the mean over the answers' tokens
    of a step, as TRL's: `tests/embedded/test_shared_prompts.py` compares the two."""

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return the loss of a micro-batch: of its answers' tokens, as a part of the step's."""
        rows = sorted(_rows(inputs["input_ids"], inputs["labels"]), key=lambda row: torch.cat(row).tolist())
        packed = pack(rows, ROUND)
        logits = packed.answer_logits(model)
        answers = torch.cat([answer for _, answer in rows])
        total = taught_loss(logits, answers)
        tokens = packed.answered if num_items_in_batch is None else num_items_in_batch
        loss = total / torch.as_tensor(tokens, device=total.device).clamp(min=1)
        return (loss, None) if return_outputs else loss


def _rows(input_ids: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The prompt and the answer of each row of a padded batch; an answer is what has labels."""
    rows = []
    for ids, label in zip(input_ids, labels, strict=True):
        places = (label != NO_LOSS).nonzero().flatten()
        first, last = int(places[0]), int(places[-1])
        rows.append((ids[:first], ids[first : last + 1]))
    return rows
