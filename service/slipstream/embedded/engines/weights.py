"""Weights of a version, checked before an engine takes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from slipstream.embedded.checkpoints import CheckpointError, read_weights
from slipstream.embedded.engines.engine import EngineError


def checked_weights(version: int, directory: Path, model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a model directory, one after the other. Of tied weights one name is enough.

    Args:
        model: the model that they are for, on any device, `meta` included.

    Raises:
        EngineError: they cannot be read, are not this model's, or hold a number that is not finite.
    """
    state = model.state_dict(keep_vars=True)
    given = set()
    try:
        for name, tensor in read_weights(directory):
            if name not in state:
                raise EngineError(f"version {version}: unknown {name}")
            if tensor.shape != state[name].shape:
                raise EngineError(f"version {version}: {name}: expected {state[name].shape}, found {tensor.shape}")
            if not bool(torch.isfinite(tensor).all()):
                raise EngineError(f"version {version}: {name}: not all numbers are finite")
            given.add(id(state[name]))
            yield name, tensor
    except CheckpointError as error:
        raise EngineError(f"version {version}: {error}") from error
    if missing := [name for name, tensor in state.items() if id(tensor) not in given]:
        raise EngineError(f"version {version}: missing {missing[:3]}")
