"""The precision in which Explorer and Trainer compute."""

from __future__ import annotations

import torch

_BF16_FEATURES = ("avx512_bf16", "amx_bf16", "bf16")
"""CPU features of x86 and ARM: without one of them, bfloat16 takes several times as long as float32."""


def computes_in_bfloat16(dtype: str) -> bool:
    """Return whether a configured `dtype` means bfloat16 on this CPU; `auto` does where the CPU has it."""
    if dtype == "auto":
        return any(torch.cpu.get_capabilities().get(feature) for feature in _BF16_FEATURES)
    return dtype == "bfloat16"
