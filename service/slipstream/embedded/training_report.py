"""The text of `slipstream train --estimate`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from slipstream.datasets.row import Row
from slipstream.datasets.trained_dataset import TrainedDataset
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.estimate import GPUS, Device, memory, seconds, smaller
from slipstream.embedded.training_plan import TrainingPlan, Work, calibrate, plan, this_device


def report(config: EngineConfig, rows: Iterable[Row], dataset: TrainedDataset, *, calibrates: bool = False) -> str:
    """Say what a run would take here and on named GPUs.

    Args:
        calibrates: run two real steps, and reckon from what these took.

    Raises:
        ConfigError: a setting cannot be trained with; names the key.
        RunError: no row can be trained on.
    """
    with tempfile.TemporaryDirectory(prefix="slipstream-estimate-") as scratch:
        planned = plan(config, rows, dataset, Path(scratch) / "rows")
        lines = [*_head(planned), *_here(planned, this_device(config)), *_gpus(planned)]
        if calibrates:
            took = calibrate(config, planned, dataset.seed)
            lines.append(
                f"two real steps: {_size(took.memory)} at the peak, {took.seconds:.1f} s a step: "
                f"{_time(took.seconds * planned.steps)} in all"
            )
    return "\n".join(lines)


def _head(planned: TrainingPlan) -> Iterator[str]:
    setting, table = planned.here.setting, planned.table
    what = "all weights" if setting.rank is None else f"adapters of rank {setting.rank}"
    yield (
        f"{setting.algorithm}, {what} of {planned.model.parameters / 1e6:,.0f}M parameters: {len(table.weights)} rows "
        f"of up to {table.longest} tokens, {planned.epochs} epochs, {planned.steps} steps"
    )
    for reason, count in table.left_out.items():
        yield f"  left out, {reason}: {count}"


def _here(planned: TrainingPlan, place: Device) -> Iterator[str]:
    yield f"here, {_memory(planned, planned.here)}"
    name = f"{place.name}, {_size(place.memory)}, {place.speed / 1e9:,.0f} GFLOPS"
    yield from _on(planned, planned.here, place, name)


def _gpus(planned: TrainingPlan) -> Iterator[str]:
    yield f"on a GPU, {_memory(planned, planned.on_gpu)}"
    for gpu in GPUS.values():
        yield from _on(planned, planned.on_gpu, gpu, f"{gpu.name}, {gpu.memory / 1e9:.0f} GB")


def _memory(planned: TrainingPlan, work: Work) -> str:
    takes = memory(planned.model, work.setting)
    return (
        f"{work.setting.tokens} tokens at once in {'bfloat16' if work.setting.bfloat16 else 'float32'}: "
        f"{_size(takes.total)}: weights {_size(takes.weights)}, gradients and optimizer {_size(takes.training)}, "
        f"activations {_size(takes.activations)}, libraries {_size(takes.libraries)}"
    )


def _on(planned: TrainingPlan, work: Work, place: Device, name: str) -> Iterator[str]:
    """The time on a device, or what would make it fit there."""
    if memory(planned.model, work.setting).total <= place.memory:
        yield f"  {name}: {_time(seconds(planned.model, work.setting, work.tokens, planned.epochs, place))}"
        return
    yield f"  {name}: does not fit"
    changes = smaller(planned.model, work.setting, place)
    if not changes:
        yield "    no change of a setting makes it fit: a smaller model, or several GPUs on Trinity-RFT"
    for change, takes in changes[:2]:
        yield f"    fits with {change}: {_size(takes.total)}"


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


def _time(taken: float) -> str:
    if taken < 120:
        return f"{max(taken, 1):.0f} s"
    return f"{taken / 60:.0f} min" if taken < 2 * 3600 else f"{taken / 3600:.1f} h"
