"""The `algorithm` section: what is learned from, by which loss, with which optimizer.

The keys are Trinity-RFT's (0.6.0). `loss_type`, `desirable_weight` and `undesirable_weight` are TRL's: Trinity has one
loss of DPO, and no KTO.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from slipstream.datasets.row import Kind
from slipstream.embedded.section import Number, Positive, Section
from slipstream.errors import ConfigError

OnlineAlgorithm = Literal["grpo", "multi_step_grpo", "ppo", "mix"]
"""Algorithms that learn from rewarded answers of the policy; `mix` from rows of a data set in the same step too."""

DatasetAlgorithm = Literal["sft", "dpo", "kto", "sdpo"]
"""Algorithms that learn from the rows of a data set."""

AlgorithmType = Literal["grpo", "multi_step_grpo", "ppo", "mix", "sft", "dpo", "kto", "sdpo"]

_OF_KIND: dict[Kind, DatasetAlgorithm] = {
    Kind.SFT: "sft",
    Kind.PREFERENCE: "dpo",
    Kind.KTO: "kto",
    Kind.CORRECTION: "sdpo",
}


class Optimizer(Section):
    """`lr_warmup_steps` below 0 leaves the warm-up to `lr_warmup_steps_ratio`, a share of all steps."""

    lr: Annotated[Number, Field(gt=0)] = 1e-6
    lr_warmup_steps: int = -1
    lr_warmup_steps_ratio: Annotated[Number, Field(ge=0, lt=1)] = 0.0
    lr_scheduler_type: str = "constant"
    betas: tuple[Number, Number] = (0.9, 0.999)
    weight_decay: Annotated[Number, Field(ge=0)] = 0.01
    clip_grad: Annotated[Number, Field(gt=0)] = 1.0

    def warmup_steps(self, steps: int) -> int:
        """Return how many of so many steps warm up."""
        return self.lr_warmup_steps if self.lr_warmup_steps >= 0 else round(self.lr_warmup_steps_ratio * steps)

    def schedule(self, steps: int) -> str:
        """Return the schedule's name in transformers: a constant rate after a warm-up has one of its own."""
        warms_up = self.lr_scheduler_type == "constant" and self.warmup_steps(steps) > 0
        return "constant_with_warmup" if warms_up else self.lr_scheduler_type


_SHAPE_OF_TRINITYS_BATCH = {
    "use_dynamic_bsz", "ppo_mini_batch_size", "ppo_micro_batch_size_per_gpu", "ngpus_trainer",
    "train_batch_size_usual", "train_batch_size_expert",
}  # fmt: skip
"""Arguments of Trinity's `mix` loss that follow from other keys. Here the means are computed over the whole step."""


class PolicyLoss(Section):
    """Arguments of the loss.

    The limits of a step's change of a token's probability, as a ratio, and the unit over which the loss is averaged
    belong to the online algorithms. The others belong to `dpo` and `kto`: `beta` holds the policy near the one that it
    started from, and `label_smoothing` is the share of pairs that are taken to be the wrong way round.

    Those of `sdpo` are TRL's too, but for `distillation_answers`: the answers on whose tokens the policy is trained
    towards the policy that has read the correction. `corrected` are that policy's own, `given` those that were
    corrected. `distillation_alpha` is 0 for KL(teacher || student), 1 for the reverse, and between them a
    Jensen-Shannon divergence; `distillation_topk` tokens of a distribution are told apart.

    `mu` belongs to `mix`: the weight of the supervised loss, where that of the policy's loss is 1 - mu. The unit over
    which each of the two is averaged has a key of its own there, and is that of `loss_agg_mode` without it.
    """

    clip_range: Annotated[Number, Field(gt=0)] = 0.2
    clip_range_low: Annotated[Number, Field(gt=0)] | None = None
    clip_range_high: Annotated[Number, Field(gt=0)] | None = None
    loss_agg_mode: Literal["token-mean", "seq-mean-token-mean"] = "token-mean"
    grpo_loss_agg_mode: Literal["token-mean", "seq-mean-token-mean"] | None = None
    sft_loss_agg_mode: Literal["token-mean"] | None = None
    mu: Annotated[Number, Field(ge=0, le=1)] = 0.1
    beta: Annotated[Number, Field(gt=0)] = 0.1
    label_smoothing: Annotated[Number, Field(ge=0, lt=0.5)] = 0.0
    loss_type: Literal["sigmoid", "hinge", "ipo"] = "sigmoid"
    reference_free: bool = False
    desirable_weight: Annotated[Number, Field(gt=0)] = 1.0
    undesirable_weight: Annotated[Number, Field(gt=0)] = 1.0
    distillation_answers: Literal["corrected", "given"] = "corrected"
    distillation_alpha: Annotated[Number, Field(ge=0, le=1)] = 0.5
    distillation_topk: Annotated[int, Field(ge=1, le=1000)] = 20

    @property
    def low(self) -> float:
        return self.clip_range if self.clip_range_low is None else self.clip_range_low

    @property
    def high(self) -> float:
        return self.clip_range if self.clip_range_high is None else self.clip_range_high

    @property
    def policy_agg_mode(self) -> str:
        """Return the unit over which the loss of an online algorithm is averaged."""
        return self.grpo_loss_agg_mode or self.loss_agg_mode

    def unknown(self, prefix: str = "") -> Iterator[str]:
        return (key for key in super().unknown(prefix) if key.removeprefix(prefix) not in _SHAPE_OF_TRINITYS_BATCH)

    @model_validator(mode="after")
    def _is_built(self) -> Self:
        if self.reference_free:
            raise ValueError(
                "reference_free: expected false: TRL, which trains here, has no DPO without the policy that it started "
                "from as the reference. With LoRA (model.lora_configs) that reference takes no memory"
            )
        if self.label_smoothing and self.loss_type != "sigmoid":
            raise ValueError(
                f"label_smoothing: expected 0 with loss_type {self.loss_type}, which has no smoothing; "
                f"found {self.label_smoothing:g}"
            )
        return self


class KlTerm(Section):
    """Weight of a KL term; Trinity-RFT's default is 0.001."""

    kl_coef: Number = 0.001


class SampleStrategy(Section):
    """Rows of a data set in a step of `mix`.

    `expert_data_ratio` is their share of `buffer.train_batch_size`, rounded up, and `sft_dataset_name` the name of the
    data set among `buffer.trainer_input.auxiliary_buffers`.
    """

    expert_data_ratio: Annotated[Number, Field(ge=0, lt=1)] = 0.5
    sft_dataset_name: str = "sft_dataset"


class Algorithm(Section):
    """`grpo` and `multi_step_grpo` compare the runs of a task with each other; `ppo` takes single samples against the
    batch's mean; `mix` is `grpo` with rows of a data set in each step. There is no reference model for them: a KL term
    must be off. `sft`, `dpo` and `kto` train on a data set; theirs is the policy that training started from, and no KL
    term is added to their loss."""

    algorithm_type: AlgorithmType = "ppo"
    repeat_times: Positive = 1
    sample_strategy: str | None = None
    sample_strategy_args: SampleStrategy = SampleStrategy()
    optimizer: Optimizer = Optimizer()
    policy_loss_fn_args: PolicyLoss = PolicyLoss()
    kl_loss_fn: str = "none"
    kl_loss_fn_args: KlTerm = KlTerm()
    kl_penalty_fn: str = "none"
    kl_penalty_fn_args: KlTerm = KlTerm()

    @property
    def online(self) -> OnlineAlgorithm:
        """Return the algorithm of an Explorer or a Trainer.

        Raises:
            ConfigError: it is one that trains on a data set.
        """
        chosen = self.algorithm_type
        if chosen == "sft" or chosen == "dpo" or chosen == "kto" or chosen == "sdpo":
            raise ConfigError(
                "algorithm.algorithm_type: expected grpo, multi_step_grpo, ppo or mix, which learn from rewarded "
                "answers; "
                f"found {chosen!r}, which trains on a data set: slipstream train --config data.yaml"
            )
        return chosen

    def on_dataset(self, kind: Kind) -> DatasetAlgorithm:
        """Return the algorithm that trains on a data set of this kind.

        Raises:
            ConfigError: the configuration names another one.
        """
        expected = _OF_KIND[kind]
        if self.algorithm_type != expected:
            raise ConfigError(
                f"algorithm.algorithm_type: expected {expected!r} for a data set of kind {kind}, "
                f"found {self.algorithm_type!r}; overlays/{expected}.yaml among train.overlays says so"
            )
        return expected

    def unknown(self, prefix: str = "") -> Iterator[str]:
        yield from super().unknown(prefix)
        if self.sample_strategy not in (None, "mix"):
            yield f"{prefix}sample_strategy"

    @model_validator(mode="after")
    def _mixes_as_it_says(self) -> Self:
        mixes, strategy = self.algorithm_type == "mix", self.sample_strategy
        if strategy is not None and mixes is not (strategy == "mix"):
            expected = (
                "mix for algorithm_type mix" if mixes else f"another one for algorithm_type {self.algorithm_type}"
            )
            raise ValueError(f"sample_strategy: expected {expected}, found {strategy!r}")
        loss = self.policy_loss_fn_args
        if mixes and loss.loss_agg_mode != "token-mean" and loss.sft_loss_agg_mode is None:
            raise ValueError(
                "policy_loss_fn_args.sft_loss_agg_mode: expected token-mean, the only one for rows of a data set, "
                f"found {loss.loss_agg_mode} by loss_agg_mode"
            )
        return self

    @model_validator(mode="after")
    def _has_no_kl_term(self) -> Self:
        for name in ("kl_loss_fn", "kl_penalty_fn"):
            function, weight = getattr(self, name), getattr(self, f"{name}_args").kl_coef
            if function != "none" and weight != 0:
                raise ValueError(
                    f"{name}: the embedded engine has no reference model for a KL term; expected none, or "
                    f"{name}_args.kl_coef 0 (which overlays/small-cpu.yaml sets), found {function} with {weight:g}"
                )
        return self
