"""A Trainer's directory, written as the embedded engine and as Trinity-RFT write it, without a model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any


class CheckpointJob:
    """The directory of a job whose weights are a few bytes of text."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    def step(self, version: int) -> Path:
        return self.path / f"global_step_{version}"

    def write(self, version: int, weights: str = "", **trained_on: Any) -> Path:
        """A step of the embedded engine that no marker names yet."""
        huggingface = self.step(version) / "actor" / "huggingface"
        huggingface.mkdir(parents=True)
        (huggingface / "config.json").write_text("{}")
        (huggingface / "model.safetensors").write_text(weights or f"weights of {version}")
        (self.step(version) / "actor" / "training_state.pt").write_text("an optimizer")
        (self.step(version) / "trained_on.json").write_text(json.dumps(trained_on))
        return self.step(version)

    def publish(self, version: int, weights: str = "", **trained_on: Any) -> Path:
        step = self.write(version, weights, **trained_on)
        self.mark(version)
        return step

    def sync(self, version: int) -> Path:
        """A step of Trinity's that has its state dict, and the files of an export without its weights."""
        actor = self.step(version) / "actor"
        (actor / "huggingface").mkdir(parents=True)
        (actor / "huggingface" / "config.json").write_text("{}")
        (actor / "model.safetensors").write_text(f"state dict of {version}")
        self.mark(version)
        return self.step(version)

    def export(self, version: int) -> None:
        """Trinity's export of a full step, whole."""
        (self.step(version) / "actor" / "huggingface" / "model.safetensors").write_text(f"weights of {version}")
        (self.step(version) / "actor" / "optim_world_size_1_rank_0.pt").write_text("an optimizer")
        (self.path / "latest_checkpointed_iteration.txt").write_text(str(version))

    def mark(self, version: int) -> None:
        (self.path / "latest_state_dict_iteration.txt").write_text(str(version))

    def prune(self, version: int) -> None:
        shutil.rmtree(self.step(version))


def weights(folder: Path) -> str:
    """The exported weights below a step's or a kept version's folder."""
    return (folder / "actor" / "huggingface" / "model.safetensors").read_text()
