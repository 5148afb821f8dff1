"""Configurations of the agent-training articles, with their names and defaults. `jobs.py` says them in `data.yaml` and
`trainer.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from slipstream.rewards.calculators.agent import DEFAULT_WEIGHTS
from slipstream.rewards.calculators.tools import Penalties

Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class AgentSFTConfig(_Config):
    """Supervised training of an agent's policy.

    Attributes:
        train_data, dev_data: `NAME:train` and `NAME:dev` of one data set; `dev` is its held-out split.
        task_weights: shares that tasks have in training, by their labels.
        batch_size, gradient_accumulation: rows of a training step are their product.
        use_coreset_selection: train on `coreset_target_size` rows, chosen by `coreset_strategy`.
        use_online_continual: mix in rows of `continual_datasets`, earlier data sets.
        load_in_4bit, load_in_8bit: keep the weights beside the adapters in so many bits; a GPU is needed.
    """

    train_data: str = "agent_sft:train"
    dev_data: str = "agent_sft:dev"
    task_weights: dict[str, Weight] = Field(
        default_factory=lambda: {
            "tool_selection": 0.35,
            "multi_step_planning": 0.30,
            "timing_decision": 0.20,
            "tool_retrieval": 0.15,
        }
    )
    base_model: Annotated[str, Field(min_length=1)] = "Qwen/Qwen2.5-7B-Instruct"
    max_length: Annotated[int, Field(ge=2)] = 4096
    lora_r: Count = 64
    lora_alpha: Count = 128
    lora_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.05
    lora_target_modules: tuple[str, ...] = (
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    )  # fmt: skip
    num_epochs: Count = 3
    batch_size: Count = 4
    gradient_accumulation: Count = 8
    learning_rate: Rate = 2e-5
    warmup_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.1
    lr_scheduler: str = "cosine"
    load_in_4bit: bool = False
    load_in_8bit: bool = False
    use_coreset_selection: bool = False
    coreset_target_size: Count = 8000
    coreset_strategy: Literal["loss_topk", "diversity", "hybrid", "random"] = "hybrid"
    use_online_continual: bool = False
    continual_buffer_size: Count = 4096
    continual_replay_ratio: Annotated[float, Field(gt=0, lt=1)] = 0.3
    continual_datasets: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.use_online_continual and not self.continual_datasets:
            raise ValueError("continual_datasets: expected names of earlier data sets, with use_online_continual")
        if self.load_in_4bit and self.load_in_8bit:
            raise ValueError("load_in_4bit, load_in_8bit: expected one of the two, found both")
        return self


class DpoConfig(_Config):
    """Direct preference optimisation."""

    beta: Rate = 0.1
    reference_free: bool = False
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    loss_type: Literal["sigmoid", "hinge", "ipo"] = "sigmoid"


class PpoConfig(_Config):
    """Proximal policy optimisation on single runs.

    Attributes:
        kl_coef: weight of the KL term to the model that training started from.
        vf_coef: weight of a value head's loss in the policy's; there is none here.
        num_rollouts: experiences of a training step.
        chunk_size: runs that are under way at once.
    """

    kl_coef: Weight = 0.02
    clip_range: Rate = 0.2
    vf_coef: Weight = 0.5
    num_rollouts: Count = 128
    chunk_size: Count = 64


class GrpoConfig(_Config):
    """Group relative policy optimisation.

    Attributes:
        group_size: runs of a task, which are compared with each other.
        beta: weight of the KL term.
    """

    group_size: Annotated[int, Field(ge=2)] = 4
    beta: Weight = 0.1
    use_advantage: bool = True


class RLTrainingConfig(_Config):
    """Reinforcement learning: `dpo` from pairs of runs, `ppo` and `grpo` from their rewards, and `rft`, supervised
    training on the best runs of each group."""

    algorithm: Literal["dpo", "ppo", "grpo", "rft"] = "dpo"
    dpo_config: DpoConfig = DpoConfig()
    ppo_config: PpoConfig = PpoConfig()
    grpo_config: GrpoConfig = GrpoConfig()


class AgentRewardConfig(_Config):
    """Reward of an agent's answer.

    Attributes:
        weights: of the components in the mean over those that the task gives a basis for.
        penalties: for each fault, within the component `tool_accuracy`.
        clip: range of the total, as `rewards.clip`.
    """

    weights: dict[str, Weight] = Field(default_factory=lambda: dict(DEFAULT_WEIGHTS))
    penalties: Penalties = Penalties()
    clip: tuple[float, float] = (0.0, 1.0)

    @model_validator(mode="after")
    def _knows_its_components(self) -> Self:
        if unknown := self.weights.keys() - DEFAULT_WEIGHTS.keys():
            raise ValueError(f"weights: expected {', '.join(DEFAULT_WEIGHTS)}, found {', '.join(sorted(unknown))}")
        if not sum(self.weights.values()):
            raise ValueError("weights: expected one above 0")
        if not self.clip[0] < self.clip[1]:
            raise ValueError(f"clip: expected the lower end first, found {self.clip}")
        return self


PROFILES: Mapping[str, Mapping[str, Any]] = {
    "development": {
        "base_model": "Qwen/Qwen2.5-1.5B-Instruct",
        "lora_r": 16,
        "lora_alpha": 32,
        "batch_size": 1,
        "gradient_accumulation": 16,
        "max_length": 2048,
        "load_in_4bit": True,
    },
    "production": {
        "base_model": "Qwen/Qwen2.5-7B-Instruct",
        "lora_r": 64,
        "lora_alpha": 128,
        "batch_size": 4,
        "gradient_accumulation": 8,
        "max_length": 4096,
        "load_in_8bit": True,
    },
}
"""Fields of an `AgentSFTConfig` for a GPU of 24 GB, and of 80 GB."""


def profile(name: str, **fields: Any) -> AgentSFTConfig:
    """Return the configuration of a profile, with other fields over it.

    Raises:
        ValueError: there is no such profile, or a field is wrong.
    """
    if name not in PROFILES:
        raise ValueError(f"profile: expected {' or '.join(PROFILES)}, found {name!r}")
    return AgentSFTConfig(**{**PROFILES[name], **fields})
