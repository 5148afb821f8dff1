"""A language model that loads in no time and answers nonsense."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from slipstream.local import model


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


def fetch_tokenizer(directory: Path) -> Path:
    """Bring SmolLM2's tokenizer alone: its weights take half a minute to convert, and few tests need them.

    Test processes that need it at the same time wait for the first of them.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
                gguf = model.download("smollm2", Path(scratch))
                model.save_tokenizer(gguf, Path(scratch) / "files")
                (Path(scratch) / "files").rename(directory)
    return directory


def save_tiny_model(directory: Path, tokenizer: Path) -> None:
    """Write a model directory with the tokenizer files of another."""
    shutil.copytree(tokenizer, directory)
    tiny_llama(seed=0).save_pretrained(directory)
