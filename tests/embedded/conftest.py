"""The small real model, and a tiny random one where real weights do not matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from slipstream import model
from slipstream.embedded.config import EngineConfig


@pytest.fixture(scope="session")
def smollm2(pytestconfig: pytest.Config) -> Path:
    """SmolLM2-135M-Instruct, kept between runs."""
    return model.fetch("smollm2", pytestconfig.rootpath / ".cache" / "models" / "smollm2")


def tiny_llama(seed: int) -> LlamaForCausalLM:
    """Two layers of random weights, with SmolLM2's vocabulary."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=49152,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=4096,
            initializer_range=0.2,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=2,
        )
    )


@pytest.fixture(scope="session")
def tiny_model(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory that loads in no time and answers nonsense."""
    directory = tmp_path_factory.mktemp("tiny") / "model"
    tiny_llama(seed=0).save_pretrained(directory)
    AutoTokenizer.from_pretrained(smollm2).save_pretrained(directory)
    return directory


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
