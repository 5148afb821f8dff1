"""The policy model that learns: one gradient and one update a batch of stored experiences."""

from __future__ import annotations

import copy
import gc
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from slipstream.embedded.config import EngineConfig
from slipstream.embedded.experiences import Experience
from slipstream.embedded.grpo import TrainingError, loss_inputs, stored_samples_trainer
from slipstream.embedded.packing import split
from slipstream.embedded.policy_model import attends_freely, export, export_dtype, load_policy
from slipstream.memory import trim

_MOST_TOKENS = 768  # of one forward pass: its logits take 75 MB in bfloat16 with a vocabulary of 49,152
_STD_EPSILON = 1e-6  # keeps a batch of equal rewards finite


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
        self._mean_of_means = config.algorithm.policy_loss_fn_args.loss_agg_mode == "seq-mean-token-mean"
        trainer = stored_samples_trainer(config, model, self._tokenizer, output_dir)
        self._trainer = trainer
        self._model: Any = trainer.model
        self._optimizer: Any = trainer.optimizer
        self._scheduler: Any = trainer.lr_scheduler

    def accumulate(self, batch: Sequence[Experience]) -> Metrics:
        """Computes the gradient of a batch, without applying it.

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
            trainer.accelerator.backward(loss)
            sums["loss"] += loss.item()
            for name, value in trainer.pop_token_sums(inputs).items():
                sums[name] += value
        grad_norm = float(trainer.accelerator.clip_grad_norm_(self._model.parameters(), trainer.args.max_grad_norm))
        if not math.isfinite(grad_norm):
            raise TrainingError(f"the gradient's norm is {grad_norm}")
        rewards = [experience.reward for experience in batch]
        scored = max(sums["tokens"], 1)
        return Metrics(
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
        """All that the next step depends on, with the weights in float32."""
        return {name: part.state_dict() for name, part in self._stateful().items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Goes on exactly where `state()` was taken."""
        for name, part in self._stateful().items():
            part.load_state_dict(state[name])

    def _stateful(self) -> dict[str, Any]:
        return {"model": self._model, "optimizer": self._optimizer, "scheduler": self._scheduler}

    def _parts(self, batch: Sequence[Experience], advantages: Sequence[float]) -> list[list[int]]:
        """Rows to compute together. Those without an advantage have no gradient and are left out."""
        rows = [row for row, advantage in enumerate(advantages) if advantage != 0]
        if not self._shares_prompts:
            return [[row] for row in rows]
        packs = split([(batch[row].prompt_ids, batch[row].response_ids) for row in rows], _MOST_TOKENS)
        return [[rows[index] for index in chosen] for chosen in packs]


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
