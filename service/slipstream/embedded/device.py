"""The device, the precision and the amount of work of the engine at one time.

The Explorer takes a CUDA GPU where torch sees one, else the CPU; `CUDA_VISIBLE_DEVICES=""` in the environment keeps it
off a GPU. The Trainer computes on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
from transformers import TrainingArguments

Arguments = TypeVar("Arguments", bound=TrainingArguments)

_BF16_FEATURES = ("avx512_bf16", "amx_bf16", "bf16")
"""CPU features of x86 and ARM: without one of them, bfloat16 takes several times as long as float32."""


@dataclass(frozen=True)
class Limits:
    """Bounds of what is computed together.

    Attributes:
        rows: answers that are decoded at once.
        cache_bytes: keys and values of all rows at their longest; what would not fit waits.
        prompt_tokens: read at one time, while the other rows stand still.
    """

    rows: int
    cache_bytes: int
    prompt_tokens: int


_CPU = Limits(
    rows=64,  # more still raise the tokens a second, and each answer waits longer
    cache_bytes=2 * 1024**3,
    prompt_tokens=4096,  # about 5 s of a core for 135M parameters
)
_GPU = Limits(rows=256, cache_bytes=8 * 1024**3, prompt_tokens=32_768)


def device() -> torch.device:
    """Return the Explorer's: the first GPU, or the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def on_one_gpu(arguments: Arguments) -> Arguments:
    """Have transformers' Trainer compute on the first GPU alone, however many there are.

    It would split a batch among all of them and take as many times the rows of a step; TRL refuses to. Its public way
    out is `CUDA_VISIBLE_DEVICES`, which torch has read by now, so an attribute of its own is set.
    """
    if arguments.n_gpu > 1:  # which sets the attribute when it is first read
        arguments._n_gpu = 1
    return arguments


def limits(device: torch.device) -> Limits:
    """Return how much is computed together there."""
    return _GPU if device.type == "cuda" else _CPU


def computes_in_bfloat16(dtype: str, device: torch.device) -> bool:
    """Return whether a configured `dtype` means bfloat16; `auto` does where the GPU or the CPU has it."""
    if dtype != "auto":
        return dtype == "bfloat16"
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return any(torch.cpu.get_capabilities().get(feature) for feature in _BF16_FEATURES)
