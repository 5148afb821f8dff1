"""Weights of a version, checked before an engine takes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping

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
    # experts, say, are apart in the file and together in the model
    converts = bool(get_model_conversion_mapping(model, add_legacy=False))
    try:
        for name, tensor in _converted(directory, model) if converts else read_weights(directory):
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


def _converted(directory: Path, model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a model directory under the names that the model gives them; all are in memory at once.

    Raises:
        CheckpointError: they cannot be read, or are not this model's.
    """
    load: Any = type(model).from_pretrained  # its types do not tell that it gives two values here
    try:
        loaded, found = load(directory, local_files_only=True, output_loading_info=True)
    except Exception as error:
        raise CheckpointError(f"{directory}: {error}") from error
    for problem in ("missing", "unexpected"):
        if names := sorted(found[f"{problem}_keys"]):
            raise CheckpointError(f"{directory}: {problem} {names[:3]}")
    yield from loaded.state_dict().items()
