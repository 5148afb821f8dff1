"""Metrics of training, and where they go: TensorBoard's files, and the monitor that was asked for."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from slipstream.embedded.config import EngineConfig
from slipstream.embedded.monitor.delivery import Delivery
from slipstream.embedded.monitor.run import Lineage, Run, Sink, run_of
from slipstream.errors import ConfigError


class Board:
    """Metrics by step, under `train/`.

    Args:
        folder: of TensorBoard's files.
        first_step: that will be written; later ones that are there are from before a kill.
        beside: to W&B or MLflow too.
    """

    def __init__(self, folder: Path, first_step: int, beside: Delivery | None = None) -> None:
        self._files = SummaryWriter(folder, purge_step=first_step)
        self._beside = beside

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write the metrics of a step."""
        named = {f"train/{name}": float(value) for name, value in values.items()}
        for name, value in named.items():
            self._files.add_scalar(name, value, step)
        self._files.flush()
        if self._beside is not None:
            self._beside.put(lambda sink: sink.log(named, step))

    def published(self, lineage: Lineage) -> None:
        """Note a version that was published."""
        if self._beside is not None:
            self._beside.put(lambda sink: sink.tag(lineage))

    def close(self) -> None:
        """End the run. A monitor that is away delays it by a minute at most."""
        self._files.close()
        if self._beside is not None:
            self._beside.close()


def check_monitor(config: EngineConfig) -> None:
    """Look for the library of the monitor that is asked for, before anything is loaded.

    Raises:
        ConfigError: it is not installed.
    """
    kind = config.monitor.monitor_type
    if kind != "tensorboard" and importlib.util.find_spec(kind) is None:
        raise ConfigError(
            f"monitor.monitor_type: {kind}: expected the package {kind}, which is not installed: "
            f"pip install 'slipstream-sidecar[{kind}]'"
        )


def open_board(config: EngineConfig, folder: Path, first_step: int, lineage: Lineage) -> Board:
    """Begin a run: TensorBoard's files in `folder`, and one of the monitor that is asked for.

    Args:
        lineage: where the run goes on from.
    """
    kind = config.monitor.monitor_type
    if kind == "tensorboard":
        return Board(folder, first_step)
    return Board(folder, first_step, Delivery(kind, partial(_opened, config, run_of(config, lineage))))


def _opened(config: EngineConfig, run: Run) -> Sink:
    """Open a run of a library, which is imported here: in the thread of its own."""
    arguments = config.monitor.monitor_args
    if config.monitor.monitor_type == "wandb":
        from slipstream.embedded.monitor.wandb_run import WandbRun

        return WandbRun(arguments, run)
    from slipstream.embedded.monitor.mlflow_run import MlflowRun

    return MlflowRun(arguments, run)
