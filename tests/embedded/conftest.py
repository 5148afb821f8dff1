"""An Explorer of a tiny random model, where real weights do not matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slipstream.embedded.config import EngineConfig


@pytest.fixture
def explorer_config(tiny_model: Path, tmp_path: Path) -> EngineConfig:
    """An Explorer of the tiny model in float32, whose job directory is the test's own."""
    fields: dict[str, Any] = {
        "mode": "serve",
        "project": "test",
        "name": "job",
        "checkpoint_root_dir": str(tmp_path),
        "model": {"model_path": str(tiny_model), "max_model_len": 4096},
        "algorithm": {"algorithm_type": "grpo"},
        "explorer": {
            "service_status_check_interval": 0.05,
            "rollout_model": {"dtype": "float32", "enable_auto_tool_choice": True, "tool_call_parser": "hermes"},
        },
    }
    return EngineConfig.model_validate(fields)
