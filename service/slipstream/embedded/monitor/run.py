"""A run as W&B and MLflow are told of it: its name, its settings, and which version it goes on from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from slipstream.embedded.config import EngineConfig
from slipstream.embedded.section import Section

ROLE = "trainer"
"""Trinity-RFT's word for who writes the metrics; it is part of a run's name there."""


@dataclass(frozen=True)
class Lineage:
    """A version, and what it came from.

    Attributes:
        version: the newest that the run has published; None before its first.
        parent: version that it went on from; 0 for the base model.
        dataset: name of the data set whose rows it was trained on, and `digest` of its files.
    """

    parent: int
    version: int | None = None
    dataset: str | None = None
    digest: str | None = None

    def said(self) -> dict[str, int | str]:
        """Return what is known of it, by the names of a run's settings."""
        given = {
            "version": self.version,
            "parent": self.parent,
            "dataset": self.dataset,
            "dataset_digest": self.digest,
        }
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class Run:
    """One process that trains.

    Attributes:
        name, group, project: of the run, of the runs that belong together, and of all; as Trinity-RFT names them.
        folder: where a monitor may keep files.
        settings: what is trained and how, of JSON values.
    """

    project: str
    group: str
    name: str
    folder: Path
    settings: dict[str, Any]
    lineage: Lineage


class Sink(Protocol):
    """An open run of W&B or MLflow. Its methods raise what the library raises, and may take long."""

    def log(self, values: dict[str, float], step: int) -> None:
        """Add the metrics of a step."""

    def tag(self, lineage: Lineage) -> None:
        """Note the newest version."""

    def close(self) -> None:
        """End the run."""


def run_of(config: EngineConfig, lineage: Lineage) -> Run:
    """Return the run of a Trainer's file. Keys that the embedded engine does not know are not told, nor are addresses,
    which may have passwords in them."""
    return Run(
        project=config.project,
        group=config.group or config.name,
        name=f"{config.name}_{ROLE}",
        folder=config.job_dir / "monitor",
        settings={
            "model": _known(config.model),
            "algorithm": _known(config.algorithm),
            "buffer": {
                "train_batch_size": config.buffer.train_batch_size,
                "total_epochs": config.buffer.total_epochs,
            },
            "trainer": _known(config.trainer),
            "synchronizer": _known(config.synchronizer),
            "started_from": lineage.parent,
        },
        lineage=lineage,
    )


def _known(section: Section) -> dict[str, Any]:
    return {name: _plain(getattr(section, name)) for name in type(section).model_fields}


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return _known(value)
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
