"""The policy's weights as they are trained and exported, whatever they are trained on."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.logging import disable_progress_bar

from slipstream.embedded.architecture import without_router_loss
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.device import computes_in_bfloat16
from slipstream.errors import ConfigError


def load_policy(weights: Path, **options: Any) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a model directory to train on, in float32: steps of a usual size vanish in bfloat16's 8 bits.

    Args:
        weights: `model.model_path` or an exported version.
        options: more for `from_pretrained`.

    Raises:
        ConfigError: it is no model directory.
    """
    disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        model = AutoModelForCausalLM.from_pretrained(
            weights, **{"dtype": torch.float32, "attn_implementation": "sdpa", **options}
        )
        # The token that pads often ends turns too. As padding its embedding would get no gradient, and which token that
        # is differs between a model and a version of it: TRL writes the tokenizer's into the configuration.
        embeddings: Any = model.get_input_embeddings()
        embeddings.padding_idx = None
        without_router_loss(model)
        return model, AutoTokenizer.from_pretrained(weights)
    except (OSError, ValueError) as error:
        raise ConfigError(f"model.model_path: expected a Hugging Face model directory: {error}") from error


def quantization(config: EngineConfig) -> BitsAndBytesConfig | None:
    """Return how the weights beside the adapters are kept, or None for as they are (QLoRA, arXiv:2305.14314).

    Raises:
        ConfigError: this machine cannot compute with weights of so few bits; names the key.
    """
    lora = config.model.lora_configs[0] if config.model.lora_configs else None
    if lora is None or not (lora.load_in_4bit or lora.load_in_8bit):
        return None
    key = f"model.lora_configs.0.load_in_{4 if lora.load_in_4bit else 8}bit"
    if not torch.cuda.is_available():
        raise ConfigError(f"{key}: expected a GPU, which alone computes with weights of so few bits; found none")
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ConfigError(f"{key}: expected the package bitsandbytes, which is not installed")
    made: Any = BitsAndBytesConfig  # whose types are not stated
    found: BitsAndBytesConfig = (
        made(load_in_8bit=True)
        if lora.load_in_8bit
        else made(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
    )
    return found


def with_full_weights(model: PeftModel, weights: Path) -> PeftModel:
    """Return the adapters of a quantised model over the weights that it was quantised from.

    They are merged into those: merged into quantised ones, what is served would be rounded once more.
    """
    with tempfile.TemporaryDirectory(prefix="slipstream-adapter-") as folder:
        model.save_pretrained(folder)
        return PeftModel.from_pretrained(load_policy(weights)[0], folder)


def export_dtype(config: EngineConfig, device: torch.device) -> torch.dtype:
    """Return the precision that versions are exported in.

    What is served is to be what was trained. Computing in bfloat16 rounds the weights as an export does. Computing in
    float32 does not, and rounded, most of a step vanishes: versions of the demo were 0.02 to 0.09 nats a token away
    from what was trained.

    Raises:
        ConfigError: `model.model_path` is no model directory.
    """
    if not computes_in_bfloat16(config.trainer.dtype, device):
        return torch.float32
    try:
        return AutoConfig.from_pretrained(config.model.model_path).dtype or torch.float32
    except (OSError, ValueError) as error:
        raise ConfigError(f"model.model_path: expected a Hugging Face model directory: {error}") from error


def export(model: Any, tokenizer: PreTrainedTokenizerBase, dtype: torch.dtype, path: Path) -> None:
    """Write an ordinary model directory, with adapters merged. The model is changed by it: give a copy, or the last."""
    if isinstance(model, PeftModel):
        model = model.merge_and_unload()
    model.to(dtype).save_pretrained(path)
    tokenizer.save_pretrained(path)


def lora_config(config: EngineConfig) -> LoraConfig | None:
    """Return the adapters that are to be trained, or None for all weights."""
    if not config.model.lora_configs:
        return None
    lora = config.model.lora_configs[0]
    return LoraConfig(
        r=lora.lora_rank,
        lora_alpha=lora.lora_alpha,
        target_modules=lora.target_modules,
        exclude_modules=lora.exclude_modules,
        task_type="CAUSAL_LM",
    )
