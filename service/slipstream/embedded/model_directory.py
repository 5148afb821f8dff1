"""The model directory that the embedded engine starts from, looked at before anything is loaded."""

from __future__ import annotations

import re
from pathlib import Path

from slipstream.errors import ConfigError

_NEEDED = (
    ("config.json", ("config.json",)),
    ("weights", ("*.safetensors", "*.bin")),
    ("a tokenizer", ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.*")),
)
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def check_model_directory(name: str, key: str = "model.model_path") -> Path:
    """The model directory of that name.

    Raises:
        ConfigError: it is missing, it lacks a part of a Hugging Face model directory, or the name is a hub's.
    """
    path = Path(name)
    expected = f"{key}: expected a Hugging Face model directory"
    if not path.exists() and _HUB_NAME.fullmatch(name):
        raise ConfigError(
            f"{expected}, found {name!r}, which is no directory here. If it is a model of a hub, fetch it first (the "
            f"engine downloads nothing): hf download {name} --local-dir {path.name}. "
            f"A small model comes there by: slipstream model fetch smollm2 {name}"
        )
    if not path.is_dir():
        found = "a file" if path.exists() else "nothing"
        raise ConfigError(f"{expected}, found {found} at {name!r}; correct MODEL_PATH, or bring a small model there: "
                          f"slipstream model fetch smollm2 {name}")  # fmt: skip
    missing = [part for part, patterns in _NEEDED if not any(any(path.glob(pattern)) for pattern in patterns)]
    if missing:
        raise ConfigError(f"{expected}, found {name!r} without {', '.join(missing)}")
    return path
