"""A language model that loads in no time and answers nonsense."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM


def tiny_llama(seed: int) -> LlamaForCausalLM:
    """Two layers of random weights, with SmolLM2's vocabulary."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=49152,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=4096,
            initializer_range=0.2,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=2,
        )
    )


def save_tiny_model(directory: Path, tokenizer: Path) -> None:
    """A model directory; the tokenizer is that of another."""
    tiny_llama(seed=0).save_pretrained(directory)
    AutoTokenizer.from_pretrained(tokenizer).save_pretrained(directory)
