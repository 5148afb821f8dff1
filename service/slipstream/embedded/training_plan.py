"""`slipstream train --estimate`: memory and time of a run before it begins, here and on named GPUs."""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from slipstream.datasets.row import Row
from slipstream.datasets.row_order import order
from slipstream.datasets.trained_dataset import TrainedDataset, parent_of
from slipstream.embedded import checkpoints
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.dataset_inputs import table_of, trainer_of, weights_of
from slipstream.embedded.dataset_trainers import (
    TrainedRows,
    padded_tokens,
    quiet,
    rows_together,
    steps_of,
    tokens_together,
)
from slipstream.embedded.device import computes_in_bfloat16, device
from slipstream.embedded.estimate import Device, ModelShape, Setting
from slipstream.embedded.token_table import TokenTable
from slipstream.embedded.training_process import settle

_SIZE, _SECONDS = 768, 0.5  # of the matrix products that a machine's speed is measured with


@dataclass(frozen=True)
class TrainingPlan:
    """A run before it begins.

    Attributes:
        model: that is trained.
        setting: how it is computed.
        tokens: of one epoch, with what pads them.
        epochs: how often the rows are gone through.
        steps: in all.
        table: the rows.
        weights: that training starts from.
    """

    model: ModelShape
    setting: Setting
    tokens: int
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
    table = table_of(config, dataset, rows, weights, folder)
    together = rows_together(config, algorithm, table.longest, device(), table.shared)
    epoch = order(table.weights, 1, dataset.seed)
    lora = config.model.lora_configs[0] if config.model.lora_configs else None
    return TrainingPlan(
        model=ModelShape.read(weights),
        setting=Setting(
            algorithm=algorithm,
            tokens=tokens_together(table.longest, together, algorithm, table.shared),
            rank=None if lora is None else lora.lora_rank,
            bits=16 if lora is None else 4 if lora.load_in_4bit else 8 if lora.load_in_8bit else 16,
            bfloat16=computes_in_bfloat16(config.trainer.dtype, device()),
            recomputes=config.trainer.gradient_checkpointing,
        ),
        tokens=padded_tokens(table.lengths, epoch, together, algorithm, table.shared),
        epochs=config.buffer.total_epochs,
        steps=steps_of(config, len(epoch) * config.buffer.total_epochs),
        table=table,
        weights=weights,
    )


def this_device(config: EngineConfig) -> Device:
    """Return the machine that a run would be on, with its speed as measured in half a second."""
    settle()
    place = device()
    dtype = torch.bfloat16 if computes_in_bfloat16(config.trainer.dtype, place) else torch.float32
    if place.type == "cuda":
        size = torch.cuda.get_device_properties(place).total_memory
    else:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
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
        trainer = trainer_of(two, planned.setting.algorithm, planned.weights, data, Path(scratch), seed)
        began = time.perf_counter()
        trainer.train()
        seconds = (time.perf_counter() - began) / 2
    if device().type == "cuda":
        return Calibration(seconds, torch.cuda.max_memory_allocated())
    return Calibration(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
