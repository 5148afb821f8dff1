"""The engine that a configuration asks for, on its base model."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoConfig, AutoTokenizer, GenerationConfig, PreTrainedConfig, PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

from slipstream.embedded.config import EngineConfig
from slipstream.embedded.engines.engine import Engine
from slipstream.embedded.engines.transformers_engine import load_transformers_engine
from slipstream.embedded.model_directory import check_model_directory
from slipstream.errors import ConfigError


def load_engine(config: EngineConfig, vllm: Path | None = None) -> tuple[Engine, PreTrainedTokenizerBase]:
    """Load version 0, the configuration's base model, and its tokenizer.

    Args:
        vllm: the Python of an environment with vLLM; without it transformers answers.

    Raises:
        ConfigError: `model.model_path` is no model directory, its context is shorter than the configuration's, its
            tokenizer has no chat template, transformers cannot serve its kind of attention, or vLLM does not start.
    """
    disable_progress_bar()  # type: ignore[no-untyped-call]
    directory = check_model_directory(config.model.model_path)
    tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    if not tokenizer.chat_template:
        raise ConfigError(f"model.model_path: expected a tokenizer with a chat template, found none in {directory}")
    model = AutoConfig.from_pretrained(directory, local_files_only=True)
    longest = getattr(model.get_text_config(), "max_position_embeddings", None)  # a model with state may have none
    if longest is not None and longest < config.model.context_length:
        raise ConfigError(
            f"model.max_model_len: expected at most {longest} tokens, the model's own, "
            f"found {config.model.context_length}"
        )
    eos_ids = ending_ids(directory, tokenizer, model)
    if vllm is None:
        return load_transformers_engine(config, directory, eos_ids), tokenizer
    from slipstream.embedded.engines.vllm_engine import load_vllm_engine  # imports httpx, which only this engine needs

    return load_vllm_engine(config, directory, eos_ids, vllm), tokenizer


def ending_ids(directory: Path, tokenizer: PreTrainedTokenizerBase, model: PreTrainedConfig) -> list[int]:
    """Return the tokens that end a response: the tokenizer's, and those that `generate` would read."""
    if (directory / "generation_config.json").exists():
        generation = GenerationConfig.from_pretrained(directory, local_files_only=True)
    else:
        generation = GenerationConfig.from_model_config(model)
    eos = generation.eos_token_id
    named = {tokenizer.eos_token_id, *(eos if isinstance(eos, list) else [eos])}
    return sorted(token_id for token_id in named if isinstance(token_id, int))
