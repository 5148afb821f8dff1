"""Memory and time of a training on a data set, before it runs: from `config.json`, without the model's weights.

Memory is what the weights, their gradients and Adam's two moments take (16 bytes a trained parameter in float32, as in
ZeRO, arXiv:1910.02054, without its half-precision copy), and the larger of what a forward and backward pass holds at
its two peaks, with layers computed again at backward (arXiv:1604.06174):

    inputs of the layers + max(logits, one layer) = c T h (L + 4) + max((2 c + 6) T V, 4 V h + 80 T h)

with T tokens computed at once, width h, L layers, V words, c bytes a number. Without that recomputation every layer
holds what one does. Time is floating-point operations (2 a parameter and token forward, 4 backward, arXiv:2001.08361)
by the device's speed and the share of it that training reaches.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from slipstream.embedded.algorithm import DatasetAlgorithm
from slipstream.errors import ConfigError

GIB = 1024**3
_LIBRARIES = int(0.6 * GIB)
"""Memory of torch, transformers and TRL before a model is loaded."""

_BITS_4, _BITS_8 = 0.6, 1.1
"""Bytes a weight by bitsandbytes, with the scales of its blocks and what stays in 16 bits."""

_TRAINED = 12
"""Bytes a trained parameter beside the weight itself: gradient and Adam's two moments."""


@dataclass(frozen=True)
class Device:
    """A device that computes.

    Attributes:
        memory: bytes.
        speed: floating-point operations a second of a dense matrix product, in bfloat16 with sums in float32.
        reached: the share of that speed that a training reaches.
    """

    name: str
    memory: int
    speed: float
    reached: float = 0.4


def _gpu(name: str, gigabytes: int, teraflops: float) -> Device:
    return Device(name, gigabytes * 10**9, teraflops * 1e12)


GPUS = {
    device.name: device
    for device in (
        # NVIDIA's data sheets and architecture white papers; dense, without structured sparsity
        _gpu("rtx-3060", 12, 25.5),
        _gpu("rtx-3090", 24, 71),
        _gpu("rtx-4090", 24, 165.2),
        _gpu("l4", 24, 121),
        _gpu("a10", 24, 125),
        _gpu("l40s", 48, 362),
        _gpu("a100-40g", 40, 312),
        _gpu("a100-80g", 80, 312),
        _gpu("h100", 80, 989),
        _gpu("h200", 141, 989),
        _gpu("b200", 180, 2250),
    )
}


@dataclass(frozen=True)
class ModelShape:
    """A dense decoder, as its `config.json` describes it.

    Attributes:
        width, layers, words: h, L and V.
        linear: inputs and outputs of the matrices of one layer.
        tied: whether embeddings and head are one matrix.
    """

    width: int
    layers: int
    words: int
    linear: tuple[tuple[int, int], ...]
    tied: bool

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read a model directory's `config.json`.

        Raises:
            ConfigError: it cannot be read, or describes no dense decoder.
        """
        path = directory / "config.json"
        try:
            return cls.of(dict(json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path}: expected the configuration of a dense decoder: {error!r}") from error

    @classmethod
    def of(cls, said: dict[str, Any]) -> Self:
        """Return the shape that a `config.json` describes.

        Raises:
            ValueError: it has experts, of which a token uses a few.
            KeyError: a dimension is missing.
        """
        if any(said.get(name) for name in ("num_experts", "num_local_experts", "n_routed_experts")):
            raise ValueError("a mixture of experts")
        width, heads = said["hidden_size"], said["num_attention_heads"]
        size = said.get("head_dim") or width // heads
        queries, keys = heads * size, (said.get("num_key_value_heads") or heads) * size
        inner = said["intermediate_size"]
        attention = ((width, queries), (width, keys), (width, keys), (queries, width))
        return cls(
            width=width,
            layers=said["num_hidden_layers"],
            words=said["vocab_size"],
            linear=(*attention, (width, inner), (width, inner), (inner, width)),
            tied=bool(said.get("tie_word_embeddings", False)),
        )

    @property
    def parameters(self) -> int:
        """Parameters of the matrices; norms and biases, a thousandth, are left out."""
        layer = sum(rows * columns for rows, columns in self.linear)
        return self.layers * layer + self.words * self.width * (1 if self.tied else 2)

    @property
    def computed(self) -> int:
        """Parameters that each token is multiplied by: the embeddings are looked up."""
        return self.parameters - (0 if self.tied else self.words * self.width)

    def adapters(self, rank: int) -> int:
        """Parameters of LoRA's adapters of a rank at all matrices of the layers."""
        return self.layers * rank * sum(rows + columns for rows, columns in self.linear)


@dataclass(frozen=True)
class Setting:
    """Choices of a run that memory and time depend on.

    Attributes:
        tokens: computed at once, with what pads them; both answers of a pair.
        rank: of the adapters; None trains all weights.
        bits: of the weights beside adapters: 4, 8 or 16.
        bfloat16: what is computed in; False for float32.
        recomputes: computes layers again at backward.
    """

    algorithm: DatasetAlgorithm
    tokens: int
    rank: int | None = None
    bits: int = 16
    bfloat16: bool = True
    recomputes: bool = True


@dataclass(frozen=True)
class Memory:
    """Bytes at the peak of a step."""

    weights: int
    training: int
    activations: int
    libraries: int = _LIBRARIES

    @property
    def total(self) -> int:
        return self.weights + self.training + self.activations + self.libraries


def memory(model: ModelShape, setting: Setting) -> Memory:
    """Estimate the memory at the peak of a step."""
    count = model.parameters
    number = 2 if setting.bfloat16 else 4
    if setting.rank is None:
        # computing in bfloat16 takes a copy of the weights in it
        weights = count * (4 + (2 if setting.bfloat16 else 0))
        trained = count * _TRAINED
        reference = count * 4 if setting.algorithm == "kto" else 0  # DPO's are computed before the first step
    else:
        adapters = model.adapters(setting.rank)
        each = {4: _BITS_4, 8: _BITS_8}.get(setting.bits, number)
        weights = int(count * each) + adapters * 4
        trained, reference = adapters * _TRAINED, 0
    tokens = setting.tokens
    kept = number * tokens * model.width * (model.layers + 4)
    one_layer = 80 * tokens * model.width
    if not setting.recomputes:
        kept += model.layers * one_layer * number // 4
    logits = (2 * number + 6) * tokens * model.words
    peak = kept + max(logits, 4 * model.words * model.width + one_layer)
    return Memory(weights + reference, trained, peak)


def operations(model: ModelShape, setting: Setting, tokens: int, epochs: int) -> float:
    """Count the floating-point operations of a training.

    Args:
        tokens: of one epoch, with what pads them; both answers of a pair.
    """
    forward = 2
    backward = 4 if setting.rank is None else 2  # adapters need no gradient of the weights beside them
    again = forward if setting.recomputes else 0
    each = forward + backward + again
    if setting.algorithm == "kto":
        each += 3 * forward  # the reference, and for both the answers that estimate the KL divergence
    once = forward if setting.algorithm in ("dpo", "sdpo") else 0  # the reference, the teacher
    return float(model.computed) * tokens * (each * epochs + once)


def seconds(model: ModelShape, setting: Setting, tokens: int, epochs: int, device: Device) -> float:
    """Estimate the seconds of a training on a device."""
    return operations(model, setting, tokens, epochs) / (device.speed * device.reached)


def smaller(model: ModelShape, setting: Setting, device: Device) -> list[tuple[str, Memory]]:
    """List the changes that would make a training fit, the least one first, with what it takes then.

    Args:
        device: `cpu` has no weights of 4 or 8 bits.
    """
    steps: list[tuple[str, Setting]] = []
    one = max(setting.tokens // 4, 1)
    if not setting.recomputes:
        setting = replace(setting, recomputes=True)
        steps.append(("trainer.gradient_checkpointing: true", setting))
    steps.append((f"trainer.max_token_len_per_gpu: {one}", replace(setting, tokens=one)))
    lora = replace(setting, rank=setting.rank or 16)
    if setting.rank is None:
        steps.append(("model.lora_configs: [{lora_rank: 16}]", lora))
        steps.append((f"the same with max_token_len_per_gpu: {one}", replace(lora, tokens=one)))
    if device.name != "cpu":
        for bits in (8, 4):
            if bits < setting.bits:
                name = f"load_in_{bits}bit: true in model.lora_configs, and max_token_len_per_gpu: {one}"
                steps.append((name, replace(lora, bits=bits, tokens=one)))
    found = [(name, memory(model, each)) for name, each in steps]
    return [(name, takes) for name, takes in found if takes.total <= device.memory]
