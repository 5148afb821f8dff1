"""The policy model that learns: one gradient and one update a batch of stored experiences."""

from __future__ import annotations

import copy
import gc
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from slipstream.embedded.architecture import attends_freely
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.experiences import Experience
from slipstream.embedded.grpo import TrainingError, loss_inputs, stored_samples_trainer
from slipstream.embedded.packing import split
from slipstream.embedded.policy_model import export, export_dtype, load_policy
from slipstream.errors import ConfigError
from slipstream.memory import trim

_MOST_TOKENS = 768  # of one forward pass: its logits take 75 MB in bfloat16 with a vocabulary of 49,152
_STD_EPSILON = 1e-6  # keeps a batch of equal rewards finite

TaughtRow = tuple[NDArray[np.int32], NDArray[np.int32]]
"""The token ids of a prompt, and of the answer that it is to get."""


@dataclass(frozen=True)
class Metrics:
    """Metrics of one step, before its update.

    kl_to_sampling estimates KL(sampling policy || current policy) a token, in nats (Schulman's k3 estimator): what
    staleness and different arithmetic add up to. clip_fraction is the part of the tokens whose ratio was clipped.
    These two and the entropy are means over the tokens of experiences with an advantage, and 0 where there is none.
    """

    loss: float
    grad_norm: float
    reward_mean: float
    reward_std: float
    kl_to_sampling: float
    clip_fraction: float
    entropy: float
    tokens: int
    seconds: float


@dataclass(frozen=True)
class MixedMetrics(Metrics):
    """Metrics of a step with rows of a data set.

    The loss is that of Trinity-RFT's `mix`, (1 - mu) policy_loss + mu sft_loss, where sft_loss is the mean negative
    log-probability of the rows' answer tokens, of which there are row_tokens.
    """

    policy_loss: float
    sft_loss: float
    rows: int
    row_tokens: int


class Learner:
    """The policy model with its optimizer, for the life of the process.

    Args:
        config: `model`, `algorithm` and `trainer` are read.
        weights: the model directory to start from: `model.model_path` or an exported version.
        output_dir: where TRL may write; nothing is written there at present.

    Raises:
        ConfigError: the model cannot be loaded, or a setting cannot be trained with; names the key.
    """

    def __init__(self, config: EngineConfig, weights: Path, output_dir: Path) -> None:
        model, self._tokenizer = load_policy(weights)
        self._export_dtype = export_dtype(config, torch.device("cpu"))
        self._shares_prompts = attends_freely(model)
        self._mean_of_means = config.algorithm.policy_loss_fn_args.policy_agg_mode == "seq-mean-token-mean"
        self._mu = config.algorithm.policy_loss_fn_args.mu if config.algorithm.algorithm_type == "mix" else 0.0
        self._lora_alpha = config.model.lora_configs[0].lora_alpha if config.model.lora_configs else None
        trainer = stored_samples_trainer(config, model, self._tokenizer, output_dir)
        self._trainer = trainer
        self._model: Any = trainer.model
        self._optimizer: Any = trainer.optimizer
        self._scheduler: Any = trainer.lr_scheduler

    def accumulate(self, batch: Sequence[Experience], taught: Sequence[TaughtRow] = ()) -> Metrics:
        """Computes the gradient of a batch, without applying it.

        Args:
            taught: rows of a data set, for `mix`.

        Raises:
            TrainingError: an experience is malformed, or the gradient is not finite.
        """
        began = time.perf_counter()
        trainer = self._trainer
        self._model.train()
        self._optimizer.zero_grad()
        advantages = batch_advantages(batch)
        tokens = sum(len(experience.response_ids) for experience in batch)
        sums: defaultdict[str, float] = defaultdict(float)
        for rows in self._parts(batch, advantages):
            inputs = loss_inputs([batch[row] for row in rows], [advantages[row] for row in rows], tokens)
            loss = trainer.compute_loss(self._model, inputs)
            if self._mean_of_means:  # TRL's mean over this part, not over the batch
                loss = loss * (len(rows) / len(batch))
            trainer.accelerator.backward((1 - self._mu) * loss)
            sums["loss"] += loss.item()
            for name, value in trainer.pop_token_sums(inputs).items():
                sums[name] += value
        sft_loss, row_tokens = self._teach(taught)
        grad_norm = float(trainer.accelerator.clip_grad_norm_(self._model.parameters(), trainer.args.max_grad_norm))
        if not math.isfinite(grad_norm):
            raise TrainingError(f"the gradient's norm is {grad_norm}")
        rewards = [experience.reward for experience in batch]
        scored = max(sums["tokens"], 1)
        measured = Metrics(
            loss=sums["loss"],
            grad_norm=grad_norm,
            reward_mean=statistics.fmean(rewards),
            reward_std=statistics.pstdev(rewards),
            kl_to_sampling=sums["kl"] / scored,
            clip_fraction=sums["clipped"] / scored,
            entropy=sums["entropy"] / scored,
            tokens=tokens,
            seconds=time.perf_counter() - began,
        )
        if not taught:
            return measured
        mixed = asdict(measured) | {"loss": (1 - self._mu) * measured.loss + self._mu * sft_loss}
        return MixedMetrics(
            **mixed, policy_loss=measured.loss, sft_loss=sft_loss, rows=len(taught), row_tokens=row_tokens
        )

    def _teach(self, rows: Sequence[TaughtRow]) -> tuple[float, int]:
        """Adds the gradient of the rows' loss. Returns that loss, and the answer tokens that it is the mean over."""
        tokens = sum(len(answer) for _, answer in rows)
        total = 0.0
        for chosen in self._packs(rows):
            given = [
                (torch.tensor(prompt).long(), torch.tensor(answer).long())
                for prompt, answer in map(rows.__getitem__, chosen)
            ]
            loss = self._trainer.taught_loss(self._model, given) / tokens
            self._trainer.accelerator.backward(self._mu * loss)
            total += loss.item()
        return total, tokens

    def update(self) -> None:
        """Applies the accumulated gradient. Without one (no experience had an advantage) nothing changes."""
        self._optimizer.step()
        self._scheduler.step()
        self._optimizer.zero_grad()
        trim.trim()

    def save_model(self, path: Path) -> None:
        """Writes an ordinary model directory: adapters merged, in the precision of the model it started from, or in
        float32 if that is what is computed in."""
        export(copy.deepcopy(self._model), self._tokenizer, self._export_dtype, path)
        gc.collect()  # a copied model refers to itself: it would stay, 257 MiB a version of SmolLM2

    def state(self) -> dict[str, Any]:
        """All that the next step depends on but its number, with the weights in float32."""
        return {
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "lora_alpha": self._lora_alpha,  # a factor of the adapters, which stands in none of the weights
        }

    def check(self, state: Mapping[str, Any], file: Path) -> None:
        """Make sure that what `state()` gave is of the same weights and adapters.

        Args:
            file: where it was saved, for the error.

        Raises:
            ConfigError: it is not; names the key.
        """
        own, other = self._model.state_dict(), state["model"]
        alpha = state.get("lora_alpha", self._lora_alpha)  # files of before have none
        if own.keys() != other.keys() or any(own[name].shape != other[name].shape for name in own):
            found = f"model.lora_configs: expected the adapters that {file} was saved with, found others"
        elif alpha != self._lora_alpha:
            found = f"model.lora_configs.0.lora_alpha: expected {alpha}, as {file} was saved, found {self._lora_alpha}"
        else:
            return
        raise ConfigError(
            f"{found}. Put that back, or delete this file: then training goes on from the version's weights, with "
            "these adapters and an optimizer that starts afresh"
        )

    def go_on_from(self, step: int, state: Mapping[str, Any] | None) -> None:
        """Goes on after so many steps, with the learning rate that the schedule has there.

        Args:
            step: at least 1.
            state: what `state()` gave after them, with which training goes on exactly; its optimizer's moments are
                taken over, while rates, betas and the weight decay are the configured ones.
        """
        if state is not None:
            self._model.load_state_dict(state["model"])
            configured, saved = self._optimizer.state_dict()["param_groups"], state["optimizer"]["param_groups"]
            groups = [own | {"params": other["params"]} for own, other in zip(configured, saved, strict=True)]
            self._optimizer.load_state_dict({"state": state["optimizer"]["state"], "param_groups": groups})
        # A schedule is a function of `last_epoch`. The count of calls has no use but a warning at the first of them.
        self._scheduler.load_state_dict(
            self._scheduler.state_dict() | {"last_epoch": step - 1, "_step_count": step + 1}
        )
        self._scheduler.step()

    def _parts(self, batch: Sequence[Experience], advantages: Sequence[float]) -> list[list[int]]:
        """Rows to compute together. Those without an advantage have no gradient and are left out."""
        rows = [row for row, advantage in enumerate(advantages) if advantage != 0]
        packs = self._packs([(batch[row].prompt_ids, batch[row].response_ids) for row in rows])
        return [[rows[index] for index in chosen] for chosen in packs]

    def _packs(self, rows: Sequence[TaughtRow]) -> list[list[int]]:
        return split(rows, _MOST_TOKENS) if self._shares_prompts else [[row] for row in range(len(rows))]


def batch_advantages(batch: Sequence[Experience]) -> list[float]:
    """The stored advantages; single samples get (reward - mean) / (standard deviation + 1e-6) of those in the batch.

    A batch baseline in place of a value model (REINFORCE++, arXiv:2501.03262).
    """
    single = [experience.reward for experience in batch if experience.advantage is None]
    mean, deviation = (statistics.mean(single), statistics.pstdev(single)) if single else (0.0, 0.0)
    return [
        (experience.reward - mean) / (deviation + _STD_EPSILON)
        if experience.advantage is None
        else experience.advantage
        for experience in batch
    ]
