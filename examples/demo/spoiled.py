"""A bad version: the weights of a good one with noise, as a Trainer that went wrong would publish them."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from slipstream.embedded.checkpoints import publish, weights_path

_NOISE = 0.5
"""Standard deviation of the noise in that of each matrix."""


def publish_spoiled(job: Path, good: int, seed: int) -> int:
    """Publishes it in the Trainer's job directory as the version after `good`, and returns its number.

    To be called while the Trainer has nothing to train on: it would give the same number to a version of its own.

    Raises:
        CheckpointError: `good` is not the newest version, or its weights are gone.
    """
    weights = weights_path(job, good)

    def save(directory: Path) -> None:
        shutil.copytree(weights, directory)
        for file in directory.glob("*.safetensors"):
            tensors = load_file(file)
            file.unlink()
            save_file(_with_noise(tensors, seed), file, metadata={"format": "pt"})

    publish(job, good + 1, save, trained_on={"parent": good})
    return good + 1


def _with_noise(tensors: dict[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    spoiled = {}
    for name, tensor in sorted(tensors.items()):
        values = tensor.float()
        noise = torch.randn(values.shape, generator=generator) * values.std() * _NOISE
        spoiled[name] = (values + noise if values.ndim > 1 else values).to(tensor.dtype)
    return spoiled
