"""Models and folders of a measurement, and where its figures are kept."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Figures = Mapping[str, Any]
"""The figures of one seed, by name: rewards in [0, 1], counts, seconds."""


@dataclass(frozen=True)
class Given:
    """Models and folders of a measurement.

    Attributes:
        base: model directory that the policy starts from.
        teacher: model directory that production serves.
        calls: of production, that are captured.
    """

    output: Path
    base: Path
    teacher: Path | None
    calls: int

    def folder(self, name: str, seed: int) -> Path:
        """The folder of one seed's run."""
        return self.output / f"{name}-{seed}"

    def keep(self, name: str, seed: int, figures: Figures) -> None:
        """Write the figures of a seed."""
        (self.folder(name, seed) / "result.json").write_text(json.dumps(figures, indent=2) + "\n")

    def known(self, name: str, seed: int) -> Figures | None:
        """The figures of a seed that was measured before."""
        path = self.folder(name, seed) / "result.json"
        found: Figures | None = json.loads(path.read_text()) if path.is_file() else None
        return found

    def kept(self, name: str) -> list[Figures]:
        """The figures of all seeds that were measured, by seed."""
        found = [json.loads(path.read_text()) for path in self.output.glob(f"{name}-*/result.json")]
        return sorted(found, key=lambda figures: int(figures["seed"]))


def spread(values: Iterable[float], form: str = ".2f") -> str:
    """The mean, and of several values the standard deviation."""
    numbers = list(values)
    mean = format(statistics.fmean(numbers), form)
    return f"{mean} ± {statistics.stdev(numbers):{form}}" if len(numbers) > 1 else mean


def told(command: str, held_out: str) -> str:
    """The last line of a part."""
    return f"{held_out} {platform.machine()}, 2 cores; `PYTHONPATH=benchmarks python -m data_training {command}`."
