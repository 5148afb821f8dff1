"""TRL's GRPOTrainer over stored samples.

TRL generates its own samples, in groups of one size. Here the samples exist already, groups lose runs, and the next
batch may be hours away. So what is used of GRPOTrainer is the model, the optimizer, the precision, the loss and its
metrics; its outer loop (`train()`, which fetches one batch ahead) is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset  # type: ignore[import-untyped]
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import entropy_from_logits, selective_log_softmax

from slipstream.embedded.config import EngineConfig
from slipstream.embedded.device import computes_in_bfloat16
from slipstream.embedded.experiences import Experience
from slipstream.embedded.packing import Row, pack, taught_loss
from slipstream.embedded.policy_model import lora_config
from slipstream.errors import ConfigError, SlipstreamError

_LOSS_TYPES = {"token-mean": "dapo", "seq-mean-token-mean": "grpo"}  # Trinity-RFT's names, and TRL's
_SCORED_AT_ONCE = 128  # answer tokens: a float for each word of the vocabulary, in five copies at backward


class TrainingError(SlipstreamError):
    """A batch cannot be trained on; weights and optimizer are as they were before it."""


class StoredSamplesTrainer(GRPOTrainer):
    """GRPOTrainer that computes what its rows begin with alike once, and scores only answers.

    TRL's own way scores every position of every row against the whole vocabulary where Triton is missing, prompts
    included: on a CPU, for 8 answers of 25 tokens to a prompt of 60, that takes more than three times as long.
    """

    _scored: Tensor

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int, **_: Any
    ) -> tuple[Tensor, Tensor, None]:
        given = attention_mask.bool()
        mask = given[:, -logits_to_keep:]
        rows = [
            (row[:-logits_to_keep][kept[:-logits_to_keep]], row[-logits_to_keep:][kept[-logits_to_keep:]])
            for row, kept in zip(input_ids, given, strict=True)
        ]
        packed = pack(rows)
        with self.accelerator.autocast():
            logits = packed.answer_logits(model)
        answers = torch.cat([answer for _, answer in rows])
        parts = [
            checkpoint(self._score, *part, use_reentrant=False)
            for part in zip(torch.split(logits, _SCORED_AT_ONCE), torch.split(answers, _SCORED_AT_ONCE), strict=True)
        ]
        nothing = torch.zeros(mask.shape, device=logits.device)
        logps, entropies = (nothing.masked_scatter(mask, torch.cat(each)) for each in zip(*parts, strict=True))
        self._scored = logps.detach()
        return logps, entropies, None

    def _score(self, logits: Tensor, answers: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the answers' tokens, and the entropies."""
        logits = logits.float() / self.temperature
        return selective_log_softmax(logits, answers), entropy_from_logits(logits.detach())

    def taught_loss(self, model: Any, rows: Sequence[Row]) -> Tensor:
        """Return the negative log-probability of the rows' answers, summed over their tokens.

        It is that of the distribution at temperature 1, as in supervised training.

        Args:
            rows: in the order of a pack of `split`.
        """
        packed = pack(rows)
        with self.accelerator.autocast():
            logits = packed.answer_logits(model)
        return taught_loss(logits, torch.cat([answer for _, answer in rows]))

    def pop_token_sums(self, inputs: Mapping[str, Tensor]) -> dict[str, float]:
        """Return the measurements of the last loss as sums over its tokens, and reset them."""
        drift = (self._scored - inputs["old_per_token_logps"])[inputs["completion_mask"].bool()]
        means = self._metrics["train"]
        sums = {
            "tokens": float(drift.numel()),
            "kl": float((drift.exp() - 1 - drift).sum()),
            "clipped": means["clip_ratio/region_mean"][-1] * drift.numel(),
            "entropy": means["entropy"][-1] * drift.numel(),
        }
        means.clear()
        return sums


def stored_samples_trainer(
    config: EngineConfig, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, output_dir: Path
) -> StoredSamplesTrainer:
    """The model with loss, optimizer and schedule as configured, and with fresh adapters where there are to be any.

    Raises:
        ConfigError: a setting cannot be trained with; names the key.
    """
    try:
        trainer = StoredSamplesTrainer(
            model,
            reward_funcs=_no_reward,
            args=_trl_config(config, output_dir),
            train_dataset=Dataset.from_dict({"prompt": [""]}),
            processing_class=tokenizer,
            peft_config=lora_config(config),
        )
        trainer.create_optimizer_and_scheduler(config.trainer.total_steps or 0)
    except ValueError as error:
        raise ConfigError(f"algorithm.optimizer or model.lora_configs: {error}") from error
    if config.trainer.gradient_checkpointing:  # a third more time, for 1 MiB less a token of SmolLM2
        model.activation_checkpointing_enable({"use_reentrant": False})
    trainer.current_gradient_accumulation_steps = 1  # the parts of a batch are weighed by `loss_inputs` and `Learner`
    return trainer


def loss_inputs(rows: Sequence[Experience], advantages: Sequence[float], tokens: int) -> dict[str, Tensor]:
    """Build the inputs of TRL's loss; `tokens` counts the answers of the whole batch."""
    for row in rows:
        if not len(row.prompt_ids) or not len(row.response_ids) or len(row.response_ids) != len(row.logprobs):
            raise TrainingError(
                f"experience {row.msg_id}: expected a prompt, an answer and a logprob for each of its tokens, found "
                f"{len(row.prompt_ids)}, {len(row.response_ids)} and {len(row.logprobs)}"
            )
    answers = [torch.tensor(row.response_ids, dtype=torch.long) for row in rows]
    prompts = [torch.tensor(row.prompt_ids, dtype=torch.long) for row in rows]
    return {
        "prompt_ids": pad_sequence(prompts, batch_first=True, padding_side="left"),
        "prompt_mask": pad_sequence(
            [torch.ones_like(prompt) for prompt in prompts], batch_first=True, padding_side="left"
        ),
        "completion_ids": pad_sequence(answers, batch_first=True),
        "completion_mask": pad_sequence([torch.ones_like(answer) for answer in answers], batch_first=True),
        "advantages": torch.tensor(advantages),
        "old_per_token_logps": pad_sequence([torch.tensor(row.logprobs) for row in rows], batch_first=True),
        "num_items_in_batch": torch.tensor(tokens),
    }


def _trl_config(config: EngineConfig, output_dir: Path) -> GRPOConfig:
    if config.model.temperature == 0:
        raise ConfigError("model.temperature: expected above 0, as it is the sampling's, found 0")
    if any(lora.load_in_4bit or lora.load_in_8bit for lora in config.model.lora_configs or ()):
        raise ConfigError("model.lora_configs.0: load_in_4bit and load_in_8bit are for data sets: slipstream train")
    optimizer, loss = config.algorithm.optimizer, config.algorithm.policy_loss_fn_args
    steps = config.trainer.total_steps
    if steps is None and not optimizer.lr_scheduler_type.startswith("constant"):
        raise ConfigError(
            f"algorithm.optimizer.lr_scheduler_type: expected 'constant' without trainer.total_steps, "
            f"found {optimizer.lr_scheduler_type!r}"
        )
    if steps is None and optimizer.lr_warmup_steps < 0 < optimizer.lr_warmup_steps_ratio:
        raise ConfigError(
            "algorithm.optimizer.lr_warmup_steps_ratio: expected 0 without trainer.total_steps, "
            f"found {optimizer.lr_warmup_steps_ratio:g}; lr_warmup_steps says how many steps warm up"
        )
    return GRPOConfig(
        output_dir=str(output_dir),
        per_device_train_batch_size=2,  # this and the next are the least that TRL accepts, and not used here
        num_generations=2,
        temperature=config.model.temperature,
        beta=0.0,  # no reference model
        router_aux_loss_coef=0.0,  # of experts: it is a mean over all tokens of separate rows, and ours are in packs
        loss_type=_LOSS_TYPES[loss.policy_agg_mode],
        epsilon=loss.low,
        epsilon_high=loss.high,
        learning_rate=optimizer.lr,
        weight_decay=optimizer.weight_decay,
        adam_beta1=optimizer.betas[0],
        adam_beta2=optimizer.betas[1],
        max_grad_norm=optimizer.clip_grad,
        lr_scheduler_type=optimizer.schedule(steps or 0),
        warmup_steps=optimizer.warmup_steps(steps or 0),
        bf16=computes_in_bfloat16(config.trainer.dtype, torch.device("cpu")),
        activation_checkpointing=False,  # TRL's own outer loop would turn it on: see `stored_samples_trainer`
        disable_dropout=True,
        report_to=[],
        use_cpu=True,
    )


def _no_reward(**_: Any) -> list[float | None]:
    """TRL wants a source of rewards; ours come with the experiences."""
    raise NotImplementedError
