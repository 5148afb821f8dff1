"""A language model that loads in no time and answers nonsense."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from slipstream.local import model

_CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def save_byte_model(directory: Path) -> None:
    """Write a model directory whose tokens are bytes: scoring a vocabulary is most of what training a tiny model takes,
    and this one has 258 words."""
    alphabet = {character: place for place, character in enumerate(sorted(ByteLevel.alphabet()))}
    backend = Tokenizer(BPE(vocab=alphabet, merges=[]))
    backend.pre_tokenizer, backend.decoder = ByteLevel(add_prefix_space=False), ByteLevelDecoder()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", additional_special_tokens=["<|im_start|>"]
    )
    tokenizer.chat_template = _CHATML
    tokenizer.save_pretrained(directory)
    tiny_llama(seed=0, words=len(tokenizer)).save_pretrained(directory)


def tiny_llama(seed: int, words: int = 49152) -> LlamaForCausalLM:
    """Two layers of random weights, with SmolLM2's vocabulary or one of so many words."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=words,
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
