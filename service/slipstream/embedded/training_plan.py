"""`slipstream train --estimate`: memory and time of a run before it begins, here and on named GPUs."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from slipstream.datasets.row import Row
from slipstream.datasets.row_order import order
from slipstream.datasets.trained_dataset import TrainedDataset, parent_of
from slipstream.embedded import checkpoints
from slipstream.embedded.architecture import packs_rows
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.dataset_inputs import table_of, trainer_of, weights_of
from slipstream.embedded.dataset_trainers import (
    TrainedRows,
    quiet,
    steps_of,
)
from slipstream.embedded.device import computes_in_bfloat16, device
from slipstream.embedded.estimate import Device, ModelShape, Setting
from slipstream.embedded.micro_batches import padded_tokens, rows_together, tokens_together
from slipstream.embedded.token_table import TokenTable
from slipstream.embedded.training_process import settle
from slipstream.embedded.usable_memory import usable_memory

_SIZE, _SECONDS = 768, 0.5  # of the matrix products that a machine's speed is measured with


@dataclass(frozen=True)
class Work:
    """A run as it is computed on a device.

    Attributes:
        setting: how.
        tokens: of one epoch, with what pads them.
    """

    setting: Setting
    tokens: int


@dataclass(frozen=True)
class TrainingPlan:
    """A run before it begins.

    Attributes:
        model: that is trained.
        here: the run on this machine.
        on_gpu: the run on one of `GPUS`.
        epochs: how often the rows are gone through.
        steps: in all.
        table: the rows.
        weights: that training starts from.
    """

    model: ModelShape
    here: Work
    on_gpu: Work
    epochs: int
    steps: int
    table: TokenTable
    weights: Path


def plan(config: EngineConfig, rows: Iterable[Row], dataset: TrainedDataset, folder: Path) -> TrainingPlan:
    """Plan a run; of the model only its tokenizer and `config.json` are read.

    Args:
        folder: for the rows as token ids.

    Raises:
        ConfigError: a setting cannot be trained with; names the key.
        RunError: no row can be trained on.
    """
    algorithm = config.algorithm.on_dataset(dataset.kind)
    parent = parent_of(dataset.start, checkpoints.latest_version(config.job_dir) or 0)
    weights = weights_of(config, parent)
    model = ModelShape.read(weights)
    table = table_of(config, dataset, rows, weights, folder)
    epoch = order(table.weights, 1, dataset.seed)
    shared = table.shared if algorithm == "sft" and packs_rows(_without_weights(weights)) else None
    lora = config.model.lora_configs[0] if config.model.lora_configs else None

    def work(place: torch.device, *, bfloat16: bool) -> Work:
        together = rows_together(config, algorithm, table.longest, place, shared)
        setting = Setting(
            algorithm=algorithm,
            tokens=tokens_together(table.longest, together, algorithm, shared),
            rank=None if lora is None else lora.lora_rank,
            bits=16 if lora is None else 4 if lora.load_in_4bit else 8 if lora.load_in_8bit else 16,
            bfloat16=bfloat16,
            recomputes=config.trainer.gradient_checkpointing,
        )
        return Work(setting, padded_tokens(table.lengths, epoch, together, algorithm, shared))

    return TrainingPlan(
        model=model,
        here=work(device(), bfloat16=computes_in_bfloat16(config.trainer.dtype, device())),
        on_gpu=work(torch.device("cuda"), bfloat16=config.trainer.dtype != "float32"),  # all of them have it
        epochs=config.buffer.total_epochs,
        steps=steps_of(config, len(epoch) * config.buffer.total_epochs),
        table=table,
        weights=weights,
    )


def _without_weights(directory: Path) -> Any:
    """Return the model that a `config.json` describes, on torch's device without memory."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(directory))  # type: ignore[no-untyped-call]


def this_device(config: EngineConfig) -> Device:
    """Return the machine that a run would be on, with its speed as measured in half a second."""
    settle()
    place = device()
    dtype = torch.bfloat16 if computes_in_bfloat16(config.trainer.dtype, place) else torch.float32
    size = torch.cuda.get_device_properties(place).total_memory if place.type == "cuda" else usable_memory()
    one = torch.randn(_SIZE, _SIZE, device=place, dtype=dtype)
    torch.matmul(one, one)
    began, products = time.perf_counter(), 0
    while time.perf_counter() - began < _SECONDS:
        torch.matmul(one, one)
        if place.type == "cuda":
            torch.cuda.synchronize()
        products += 1
    speed = products * 2 * _SIZE**3 / (time.perf_counter() - began)
    return Device(place.type, size, speed)


@dataclass(frozen=True)
class Calibration:
    """Costs of two real steps: `seconds` of a step, and `memory` in bytes at the peak of both."""

    seconds: float
    memory: int


def calibrate(config: EngineConfig, planned: TrainingPlan, seed: int) -> Calibration:
    """Run two real steps on the first rows, and forget them."""
    settle()
    batch = config.buffer.train_batch_size
    rows = (order(planned.table.weights, 1, seed) * 2)[: 2 * batch]
    two = config.model_copy(update={"trainer": config.trainer.model_copy(update={"total_steps": 2})})
    with tempfile.TemporaryDirectory(prefix="slipstream-calibration-") as scratch, quiet():
        dataset = planned.table.dataset.select(rows)
        data = TrainedRows(dataset, list(range(len(rows))), planned.table.longest, planned.table.shared)
        trainer = trainer_of(two, planned.here.setting.algorithm, planned.weights, data, Path(scratch), seed)
        began = time.perf_counter()
        trainer.train()
        seconds = (time.perf_counter() - began) / 2
    if device().type == "cuda":
        return Calibration(seconds, torch.cuda.max_memory_allocated())
    return Calibration(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
