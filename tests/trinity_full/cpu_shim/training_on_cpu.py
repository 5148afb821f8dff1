"""What Trinity 0.6.0's trainer (verl 0.7.1, FSDP2) asks of CUDA, answered for a CPU with gloo."""

from __future__ import annotations

from types import ModuleType
from typing import Any

_MEMORY = 16 << 30
"""Bytes; verl only logs it."""


def apply(module: ModuleType) -> None:
    """Called when `verl.utils.device` has been imported."""
    import torch
    import torch.distributed as dist

    if torch.cuda.is_available():
        return
    answers: dict[str, Any] = {
        **dict.fromkeys(("empty_cache", "reset_peak_memory_stats", "ipc_collect"), lambda *_, **__: None),
        **dict.fromkeys(
            ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"), lambda *_, **__: 0
        ),
        "mem_get_info": lambda *_, **__: (_MEMORY // 2, _MEMORY),
        "get_device_name": lambda *_, **__: "CPU",
        "device_count": lambda: 1,
        "is_available": lambda: True,
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
    }
    for name, answer in answers.items():
        if not hasattr(torch.cpu, name):
            setattr(torch.cpu, name, answer)
    module.get_nccl_backend = lambda: "gloo"
    torch.cuda.get_device_capability = lambda *_, **__: (8, 0)
    torch.cuda.synchronize = lambda *_, **__: None
    torch.Tensor.pin_memory = lambda self, *_, **__: self  # type: ignore[method-assign]
    original = dist.init_process_group

    def init_process_group(backend: Any = None, *arguments: Any, **named: Any) -> Any:
        return original("gloo", *arguments, **named)  # verl asks for "cpu:gloo,cpu:nccl"

    dist.init_process_group = init_process_group
