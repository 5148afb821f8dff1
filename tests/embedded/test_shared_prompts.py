"""Supervised training that computes shared prompts once has the loss and the gradient of TRL's own way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset  # type: ignore[import-untyped]
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from slipstream.embedded.dataset_trainers import quiet
from slipstream.embedded.shared_prompts import NO_LOSS, SharedPromptsTrainer

SYSTEM = list(range(5, 45))
ROWS = [([*SYSTEM, 50 + at, 51 + at], [60 + at] * (at % 3 + 1)) for at in range(6)] + [([7, 8, 9], [10, 11])]


def _gradient(kind: type[SFTTrainer], model_dir: Path, output: Path) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss of the first step, and the gradient of each weight."""
    rows = [{"input_ids": [*prompt, *answer], "labels": [NO_LOSS] * len(prompt) + answer} for prompt, answer in ROWS]
    arguments: dict[str, Any] = {"max_steps": 1, "learning_rate": 0.0, "report_to": [], "use_cpu": True}
    args = SFTConfig(
        output_dir=str(output), per_device_train_batch_size=len(rows), max_length=None, max_grad_norm=0.0,
        logging_steps=1, disable_tqdm=True, save_strategy="no", bf16=False, **arguments,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    found: dict[str, torch.Tensor] = {}
    for name, weight in model.named_parameters():
        weight.register_post_accumulate_grad_hook(lambda each, name=name: found.update({name: each.grad.clone()}))
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    trainer = kind(model, args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
    trainer.train()
    return float(trainer.state.log_history[0]["loss"]), found


@pytest.mark.slow
def test_loss_and_gradient_are_those_of_separate_rows(tiny_model: Path, tmp_path: Path) -> None:
    with quiet():
        apart = _gradient(SFTTrainer, tiny_model, tmp_path / "apart")
        shared = _gradient(SharedPromptsTrainer, tiny_model, tmp_path / "shared")
    assert shared[0] == pytest.approx(apart[0], rel=1e-5)
    assert shared[1].keys() == apart[1].keys()
    for name, gradient in apart[1].items():
        torch.testing.assert_close(shared[1][name], gradient, rtol=1e-3, atol=1e-6, msg=name)
