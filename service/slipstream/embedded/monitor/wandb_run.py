"""A run of Weights & Biases."""

from __future__ import annotations

from typing import Any

import wandb

from slipstream.embedded.config import MonitorArguments
from slipstream.embedded.monitor.run import ROLE, Lineage, Run

_INIT_SECONDS = 30
"""Seconds of an attempt to begin a run; the library's own are 90."""

_FINISH_SECONDS = 10
"""Seconds of the upload at the end; the library has no limit. What is not uploaded stays in the run's folder."""


class WandbRun:
    """A run that is open: its `Sink`.

    Raises:
        Exception: what `wandb.init` raises, if there is no key, or the server is away.
    """

    def __init__(self, arguments: MonitorArguments, run: Run) -> None:
        run.folder.mkdir(parents=True, exist_ok=True)
        given: dict[str, Any] = {"base_url": arguments.base_url, "api_key": arguments.secret("api_key")}
        settings = wandb.Settings(
            console="off",  # the log of training is no part of a run
            silent=True,
            disable_git=True,
            init_timeout=_INIT_SECONDS,
            finish_timeout=_FINISH_SECONDS,
            **{name: value for name, value in given.items() if value},
        )
        self._run = wandb.init(
            project=run.project,
            group=run.group,
            name=run.name,
            tags=[ROLE],
            config={**run.settings, **run.lineage.said()},
            dir=str(run.folder),
            mode=arguments.mode,
            settings=settings,
            save_code=False,
        )

    def log(self, values: dict[str, float], step: int) -> None:
        """Add the metrics of a step."""
        self._run.log(values, step=step, commit=True)

    def tag(self, lineage: Lineage) -> None:
        """Note the newest version."""
        self._run.config.update(lineage.said(), allow_val_change=True)

    def close(self) -> None:
        """End the run, which uploads what waits."""
        self._run.finish()
