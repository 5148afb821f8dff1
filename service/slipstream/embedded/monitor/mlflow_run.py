"""A run of MLflow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from slipstream.embedded.config import MonitorArguments
from slipstream.embedded.monitor.run import ROLE, Lineage, Run

_URI = "http://localhost:5000"
"""Trinity-RFT's default, and the address of `mlflow server`."""

_PARAMETERS_AT_ONCE = 100
"""As many as a request may have."""

_LONGEST_PARAMETER = 500
"""Characters that every store takes."""


class MlflowRun:
    """A run that is open: its `Sink`. It uses a client of its own, and no state of the library's.

    Raises:
        Exception: what the client raises, if the server is away or refuses.
    """

    def __init__(self, arguments: MonitorArguments, run: Run) -> None:
        for variable, name in (("MLFLOW_TRACKING_USERNAME", "username"), ("MLFLOW_TRACKING_PASSWORD", "password")):
            if value := arguments.secret(name):
                os.environ[variable] = value  # the library takes them from there alone
        self._client = MlflowClient(arguments.uri or os.environ.get("MLFLOW_TRACKING_URI") or _URI)
        tags = {"group": run.group, "role": ROLE, **_tags(run.lineage)}
        made = self._client.create_run(self._experiment(run.project), run_name=run.name, tags=tags)
        self._id: str = made.info.run_id
        flat = [Param(key, str(value)[:_LONGEST_PARAMETER]) for key, value in _flat(run.settings)]
        for start in range(0, len(flat), _PARAMETERS_AT_ONCE):
            self._client.log_batch(self._id, params=flat[start : start + _PARAMETERS_AT_ONCE])

    def log(self, values: dict[str, float], step: int) -> None:
        """Add the metrics of a step."""
        now = int(time.time() * 1000)
        self._client.log_batch(self._id, metrics=[Metric(key, value, now, step) for key, value in values.items()])

    def tag(self, lineage: Lineage) -> None:
        """Note the newest version."""
        self._client.log_batch(self._id, tags=[RunTag(key, value) for key, value in _tags(lineage).items()])

    def close(self) -> None:
        """End the run."""
        self._client.set_terminated(self._id)

    def _experiment(self, name: str) -> str:
        """The experiment of this name, made if it is missing; another run may make it at the same time."""
        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self._client.create_experiment(name))
            except MlflowException:
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)


def _tags(lineage: Lineage) -> dict[str, str]:
    return {f"slipstream.{name}": str(value) for name, value in lineage.said().items()}


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
