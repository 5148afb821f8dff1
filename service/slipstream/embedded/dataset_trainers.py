"""TRL's trainers over rows that are token ids already.

TRL renders and tokenises by itself, with the trainer's template. Here that is done before, by the serving code
(`row_tokens`), so SFTTrainer gets labels, and the other two have their preparation replaced.
"""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import structlog
import torch
from datasets import Dataset, disable_progress_bars  # type: ignore[import-untyped]
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer import Trainer
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.kto_config import KTOConfig
from trl.trainer.kto_trainer import KTOTrainer
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from slipstream.embedded.algorithm import DatasetAlgorithm, PolicyLoss
from slipstream.embedded.architecture import packs_rows
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.device import computes_in_bfloat16, device, on_one_gpu
from slipstream.embedded.micro_batches import batch_arguments, rows_together
from slipstream.embedded.policy_model import lora_config
from slipstream.embedded.self_distillation import self_distillation_trainer
from slipstream.embedded.shared_prompts import ROUND, SharedPromptsTrainer
from slipstream.errors import ConfigError

log = structlog.get_logger(__name__)


class TrainedRows(NamedTuple):
    """Rows as token ids, their places in the order in which they are trained on, the tokens of the longest, and those
    that all prompts begin with alike."""

    rows: Dataset
    order: list[int]
    longest: int
    shared: int


class _PairTrainer(DPOTrainer):
    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        return dataset


class _JudgedTrainer(KTOTrainer):
    """KTOTrainer, whose estimate of the KL divergence pairs each prompt with the answer before it in the micro-batch:
    so the rows come in the order in which they are trained on."""

    def _prepare_dataset(self, dataset: Dataset, _tokenizer: Any, args: KTOConfig, *_: Any) -> Dataset:
        def shifted(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
            answers = rows["completion_ids"]
            return {"KL_completion_ids": [answers[-1], *answers[:-1]]}

        return dataset.map(
            shifted, batched=True, batch_size=args.per_device_train_batch_size, load_from_cache_file=False
        )


def dataset_trainer(
    config: EngineConfig,
    algorithm: DatasetAlgorithm,
    policy: tuple[PreTrainedModel, PreTrainedTokenizerBase],
    data: TrainedRows,
    output_dir: Path,
    seed: int,
) -> Trainer:
    """Build the trainer of a data set, with fresh adapters where there are to be any.

    Args:
        policy: the weights that training starts from, and their tokenizer.
        data: rows in the columns of `token_table` for the algorithm's kind.
        output_dir: of the checkpoints.

    Raises:
        ConfigError: a setting cannot be trained with; names the key.
    """
    model, tokenizer = policy
    rows, order, longest, shared = data
    place = device()
    packed = algorithm == "sft" and packs_rows(model)
    together = rows_together(config, algorithm, longest, place, shared if packed else None)
    common = {
        **_common(config, len(order), together, place),
        "output_dir": str(output_dir),
        "seed": seed,
    }
    parts: dict[str, Any] = {"processing_class": tokenizer, "peft_config": lora_config(config)}
    loss = config.algorithm.policy_loss_fn_args
    try:
        if algorithm == "sft":
            if loss.loss_agg_mode != "token-mean":
                raise ConfigError(
                    "algorithm.policy_loss_fn_args.loss_agg_mode: expected token-mean for sft, "
                    f"found {loss.loss_agg_mode}"
                )
            args = on_one_gpu(SFTConfig(**common, shuffle_dataset=False))
            trainer_of = SharedPromptsTrainer if packed else SFTTrainer
            return trainer_of(model, args=args, train_dataset=rows.select(order), **parts)
        if algorithm == "dpo":
            # What the answers had under the policy that training starts from is computed once, before the first step:
            # no second model is kept, and later epochs need no second pass.
            pairs = on_one_gpu(DPOConfig(**common, **_pair_loss(loss), precompute_ref_log_probs=True))
            trainer = _PairTrainer(model, args=pairs, train_dataset=rows, **parts)
            prepared: Any = trainer.train_dataset
            trainer.train_dataset = prepared.select(order)
            return trainer
        if algorithm == "sdpo":
            return self_distillation_trainer(config, policy, rows, order, common)
        judged = on_one_gpu(
            KTOConfig(
                **common,
                beta=loss.beta,
                desirable_weight=loss.desirable_weight,
                undesirable_weight=loss.undesirable_weight,
            )
        )
        return _JudgedTrainer(model, args=judged, train_dataset=rows.select(order), **parts)
    except ValueError as error:
        raise ConfigError(f"algorithm or model.lora_configs: {error}") from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep progress bars, and warnings of TRL's and peft's calls by old names, out of the log."""
    disable_progress_bars()
    before = os.environ.get("TQDM_DISABLE")
    os.environ["TQDM_DISABLE"] = "1"
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`.*gradient_checkpointing.*` is deprecated", FutureWarning)
            yield
    finally:
        if before is None:
            del os.environ["TQDM_DISABLE"]
        else:
            os.environ["TQDM_DISABLE"] = before


def comparable(config: EngineConfig, algorithm: DatasetAlgorithm, order: list[int], longest: int) -> list[int]:
    """Return the rows without a last one that KTO could compare with no other.

    Raises:
        ConfigError: KTO has less than two rows a step.
    """
    if algorithm == "kto" and len(order) % rows_together(config, algorithm, longest, device()) == 1:
        log.warning("one row less: KTO compares the rows of a batch, and the last one would be alone")
        return order[:-1]
    return order


def steps_of(config: EngineConfig, rows: int) -> int:
    """Return the training steps that so many rows make, at most `trainer.total_steps`."""
    steps = math.ceil(rows / config.buffer.train_batch_size)
    return min(steps, config.trainer.total_steps or steps)


def _common(config: EngineConfig, rows: int, together: int, place: torch.device) -> dict[str, Any]:
    """Return the arguments that all three trainers take."""
    optimizer, steps = config.algorithm.optimizer, steps_of(config, rows)
    return {
        **batch_arguments(config, together),
        "max_steps": steps,
        "train_sampling_strategy": "sequential",  # the order was drawn before
        "max_length": None,  # a row that is too long is left out, and never cut
        "pad_to_multiple_of": ROUND,
        "learning_rate": optimizer.lr,
        "weight_decay": optimizer.weight_decay,
        "adam_beta1": optimizer.betas[0],
        "adam_beta2": optimizer.betas[1],
        "max_grad_norm": optimizer.clip_grad,
        "lr_scheduler_type": optimizer.schedule(steps),
        "warmup_steps": optimizer.warmup_steps(steps),
        "bf16": computes_in_bfloat16(config.trainer.dtype, place),
        "activation_checkpointing": config.trainer.gradient_checkpointing,
        "save_strategy": "no",  # but when `supervised` asks for it
        "save_total_limit": 2,  # the one before is there until the next one is whole
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_pin_memory": place.type == "cuda",
        "use_cpu": place.type == "cpu",
    }


def _pair_loss(loss: PolicyLoss) -> dict[str, Any]:
    """Return TRL's loss for Trinity-RFT's arguments.

    Trinity's label smoothing e is conservative DPO's: -(1-e) log s(x) - e log s(-x), with s the sigmoid. TRL has it no
    more, but robust DPO (arXiv:2403.00409), -log s(x) - e x / (1-2e), from which the same is composed, as
    -log s(-x) is x - log s(x).
    """
    smoothing = loss.label_smoothing
    if not smoothing:
        return {"beta": loss.beta, "loss_type": [loss.loss_type]}
    return {
        "beta": loss.beta,
        "loss_type": ["sigmoid", "robust"],
        "loss_weights": [2 - 2 * smoothing, -(1 - 2 * smoothing)],
        "label_smoothing": smoothing,
    }
