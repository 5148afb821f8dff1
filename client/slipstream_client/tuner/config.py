"""Subject and manner of tuning: AgentScope's `TunerModelConfig`, `TinkerConfig` and `AlgorithmConfig`, with their
limits."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

SINGLE = ("ppo", "reinforceplusplus", "on_policy_distill", "jsd")
"""Algorithms that take each run by itself."""

GROUPED = (
    "multi_step_grpo", "grpo", "dapo", "gspo", "cispo", "sapo", "gigpo", "opmd", "sppo", "asymre", "topr", "rec",
    "rloo", "grpo_verl", "mix", "mix_chord",
)  # fmt: skip
"""Algorithms that compare the runs of a task with each other."""

LOCAL = ("multi_step_grpo", "grpo", "ppo")
"""Algorithms of the embedded engine."""

OFFLINE = ("sft", "dpo", "cpt", "raft")
"""Algorithms that Trinity-RFT knows, and that learn nothing from chat, feedback and commit."""


def _known(algorithm_type: str) -> str:
    known = (*GROUPED, *SINGLE, *OFFLINE)
    if algorithm_type not in known:
        raise ValueError(f"expected one of {', '.join(known)}")
    return algorithm_type


class _Config(BaseModel):
    model_config = ConfigDict(protected_namespaces=(), extra="forbid")


class TinkerConfig(_Config):
    """A LoRA that is trained by the Tinker service. `tune` knows the fields and refuses them."""

    rank: int = Field(default=16, ge=1, description="The rank of the adapter.")
    seed: int | None = Field(default=None, description="Of the adapter's first weights; None: another each time.")
    train_mlp: bool = Field(default=True, description="Whether the MLP layers have an adapter.")
    train_attn: bool = Field(default=True, description="Whether the attention layers have an adapter.")
    train_unembed: bool = Field(default=True, description="Whether the unembedding layer has an adapter.")
    base_url: str | None = Field(default=None, description="Of the service; None: its public one.")

    def get_config(self) -> dict[str, Any]:
        """The fields as Trinity-RFT's `model.tinker` has them."""
        return self.model_dump()


class TunerModelConfig(_Config):
    """A model, the one that is tuned or an auxiliary one.

    `base_url` and `api_key` are for an auxiliary model that is served already, by anything that speaks OpenAI's HTTP;
    the original has no such fields.
    """

    model_path: str = Field(min_length=1, description="A Hugging Face model directory, or the name at `base_url`.")
    max_model_len: int = Field(ge=2, description="Most tokens of a prompt and its answer together.")
    temperature: float = Field(default=1.0, ge=0, allow_inf_nan=False, description="What answers are sampled at.")
    top_p: float = Field(default=1.0, gt=0, le=1, description="Of the likeliest tokens, how much is sampled from.")
    max_tokens: int = Field(default=8192, ge=1, description="Most tokens of an answer.")
    enable_thinking: bool | None = Field(default=None, description="For Qwen3's chat template; None: its default.")
    tensor_parallel_size: int = Field(default=1, ge=1, description="GPUs of one engine.")
    inference_engine_num: int = Field(default=1, ge=1, description="Engines that answer.")
    tool_call_parser: str = Field(default="hermes", description="How the model writes tool calls.")
    reasoning_parser: str = Field(default="deepseek_r1", description="How the model writes its reasoning.")
    tinker_config: TinkerConfig | None = Field(default=None, description="Refused: see there.")
    base_url: str | None = Field(default=None, min_length=1, description="Where an auxiliary model is served.")
    api_key: str | None = Field(default=None, min_length=1, description="For `base_url`.", repr=False)

    def get_config(self) -> dict[str, Any]:
        """The fields as Trinity-RFT's `InferenceModelConfig` has them."""
        return {
            "model_path": self.model_path,
            "max_model_len": self.max_model_len,
            "tensor_parallel_size": self.tensor_parallel_size,
            "engine_num": self.inference_engine_num,
            "tool_call_parser": self.tool_call_parser,
            "reasoning_parser": self.reasoning_parser,
            "enable_openai_api": True,
            "enable_auto_tool_choice": True,
        }


class AlgorithmConfig(_Config):
    """Settings of the algorithm."""

    algorithm_type: Annotated[str, AfterValidator(_known)] = Field(
        default="multi_step_grpo", description="One of Trinity-RFT's; multi_step_grpo suits agents."
    )
    learning_rate: float = Field(default=1e-6, gt=0, allow_inf_nan=False, description="Of the optimizer.")
    group_size: int = Field(default=8, ge=1, description="Runs of a task, which are compared with each other.")
    batch_size: int = Field(default=32, ge=1, description="Tasks of a step; each has group_size runs.")
    save_interval_steps: int = Field(default=100, ge=1, description="Steps from one full checkpoint to the next.")
    eval_interval_steps: int = Field(default=100, ge=1, description="Steps from one evaluation to the next.")
