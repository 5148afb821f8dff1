"""Run by `.monitors-venv/bin/python` with KIND and WHERE: the runs in a folder of W&B's, or in a store of MLflow's.

Prints one line of JSON: of each run its name, group, settings, tags and metrics by step.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_HEADER, _BLOCK = 7, 32768
_FULL, _LAST = 1, 4


def of_wandb(folder: str) -> list[dict[str, Any]]:
    """Offline runs, from the file that `wandb sync` uploads."""
    from wandb.proto import wandb_internal_pb2

    found = []
    for path in sorted(Path(folder).glob("offline-run-*/run-*.wandb")):
        run: dict[str, Any] = {"settings": {}, "metrics": {}}
        for data in _records(path.read_bytes()[_HEADER:]):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.HasField("run"):
                run |= {
                    "project": record.run.project,
                    "group": record.run.run_group,
                    "name": record.run.display_name,
                    "tags": list(record.run.tags),
                }
                run["settings"] |= _settings(record.run.config)
            elif record.HasField("config"):
                run["settings"] |= _settings(record.config)
            elif record.HasField("history"):
                values = {(item.key or item.nested_key[0]): json.loads(item.value_json) for item in record.history.item}
                run["metrics"][values.pop("_step")] = {key: value for key, value in values.items() if key[0] != "_"}
        found.append(run)
    return found


def _records(log: bytes) -> Iterator[bytes]:
    """Records of LevelDB's log format: blocks of 32 KiB, which have pieces of checksum, length and kind before them."""
    place, whole = 0, b""
    while place + 7 <= len(log):
        left = _BLOCK - (place + _HEADER) % _BLOCK
        if left < 7:
            place += left
            continue
        length, kind = struct.unpack_from("<HB", log, place + 4)
        whole += log[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (_FULL, _LAST):
            yield whole
            whole = b""


def _settings(record: Any) -> dict[str, Any]:
    return {(item.key or item.nested_key[0]): json.loads(item.value_json) for item in record.update}


def of_mlflow(uri: str) -> list[dict[str, Any]]:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    found = []
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id]):
            metrics: dict[int, dict[str, float]] = {}
            for name in run.data.metrics:
                for each in client.get_metric_history(run.info.run_id, name):
                    metrics.setdefault(each.step, {})[name] = each.value
            found.append(
                {
                    "project": experiment.name,
                    "group": run.data.tags["group"],
                    "name": run.info.run_name,
                    "status": run.info.status,
                    "settings": dict(run.data.params),
                    "tags": dict(run.data.tags),
                    "metrics": metrics,
                }
            )
    return found


if __name__ == "__main__":
    kind, where = sys.argv[1:]
    print(json.dumps((of_wandb if kind == "wandb" else of_mlflow)(where)))
