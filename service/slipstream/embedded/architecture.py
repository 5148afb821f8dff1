"""Differences between models that decide how they can be computed here."""

from __future__ import annotations

import math
from typing import Any


def free_context(model: Any) -> float:
    """Return within how many tokens a model attends to exactly what a mask allows.

    It is infinite for full attention, the shortest window where layers have one, and 0 for a model with layers that
    keep a state or choose tokens by themselves.
    """
    config = model.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    layers = getattr(config, "layer_types", None)
    if not layers:  # where they are named, a class of models with state may have none, as Granite 4's small ones
        stateful = getattr(model, "_is_stateful", False)
        layers = ["linear_attention" if stateful else "sliding_attention" if window else "full_attention"]
    spans = {
        "full_attention": math.inf,
        "sliding_attention": window,
        "chunked_attention": getattr(config, "attention_chunk_size", None),
    }
    return min(spans.get(layer) or 0 for layer in layers)


def attends_freely(model: Any) -> bool:
    """Return whether a model attends to exactly what a mask allows, however long the text is."""
    return free_context(model) >= getattr(model.config.get_text_config(), "max_position_embeddings", math.inf)


def balances_experts(model: Any) -> bool:
    """Return whether the model is a mixture of experts that can be asked for a loss by which its router spreads the
    tokens over them."""
    return hasattr(model.config.get_text_config(), "output_router_logits")


def packs_rows(model: Any) -> bool:
    """Return whether rows of a data set can be one sequence, in which the prompts that they share are computed once:
    not by experts that are balanced over all tokens."""
    return attends_freely(model) and not balances_experts(model)


def without_router_loss(model: Any) -> None:
    """Have a model compute that loss only where it is asked to: it takes no mask of four dimensions."""
    if balances_experts(model):
        model.config.get_text_config().output_router_logits = False
