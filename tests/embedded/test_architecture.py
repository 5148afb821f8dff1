"""Models of other architectures: what the engine on transformers serves, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_model import save_byte_model
from transformers import AutoModelForCausalLM, PreTrainedConfig
from transformers.models.gemma3 import Gemma3TextConfig
from transformers.models.granitemoehybrid import GraniteMoeHybridConfig
from transformers.models.lfm2 import Lfm2Config
from transformers.models.llama import LlamaConfig
from transformers.models.llama4 import Llama4TextConfig
from transformers.models.mamba import MambaConfig
from transformers.models.mistral import MistralConfig
from transformers.models.qwen2 import Qwen2Config
from transformers.models.qwen3 import Qwen3Config
from transformers.models.qwen3_next import Qwen3NextConfig
from transformers.models.rwkv import RwkvConfig

from slipstream.embedded.architecture import attends_freely, free_context
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.engines.loading import load_engine
from slipstream.errors import ConfigError

SIZES = {
    "vocab_size": 258,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
}
WINDOW = MistralConfig(**SIZES, sliding_window=64)


def skeleton(config: PreTrainedConfig) -> AutoModelForCausalLM:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def test_the_context_that_is_free_of_a_model_s_own_mask() -> None:
    infinite = float("inf")
    for config, free in (
        (LlamaConfig(**SIZES), infinite),
        (Qwen2Config(**SIZES, sliding_window=64), infinite),  # which it has and does not use
        (Qwen3Config(**SIZES, sliding_window=64), infinite),
        (Qwen2Config(**SIZES, sliding_window=64, use_sliding_window=True, max_window_layers=1), 64),
        (MistralConfig(**SIZES, sliding_window=None), infinite),
        (WINDOW, 64),
        (Gemma3TextConfig(**SIZES, sliding_window=32), 32),
        (Llama4TextConfig(**SIZES, attention_chunk_size=16, num_local_experts=2, no_rope_layers=[1, 0]), 16),
        (Lfm2Config(**SIZES, layer_types=["conv", "full_attention"]), 0),
        (Qwen3NextConfig(**SIZES, layer_types=["linear_attention", "full_attention"], num_experts=2), 0),
        (GraniteMoeHybridConfig(**SIZES, layer_types=["attention", "attention"], mamba_n_heads=4), infinite),
        (RwkvConfig(vocab_size=258, hidden_size=32, num_hidden_layers=1), 0),
        (MambaConfig(vocab_size=258, hidden_size=32, num_hidden_layers=1), 0),
    ):
        model = skeleton(config)
        assert free_context(model) == free, config
        assert attends_freely(model) == (free == infinite)
    assert attends_freely(skeleton(MistralConfig(**SIZES, sliding_window=256)))  # as long as all that it can read


@pytest.mark.parametrize(
    ("model", "context", "refusal"),
    [
        pytest.param(WINDOW, 65, "model.max_model_len: expected at most 64 tokens.*found 65.*--vllm", id="window"),
        pytest.param(WINDOW, 64, None, id="window of the context's length"),
        pytest.param(
            MambaConfig(vocab_size=258, hidden_size=32, num_hidden_layers=1),
            64,
            "model.model_path: expected .*found MambaForCausalLM.*--vllm",
            id="state",
        ),
        pytest.param(Qwen3Config(**SIZES), 256, None, id="window that is not used"),
    ],
)
def test_a_model_that_would_be_decoded_wrongly_is_refused(
    model: PreTrainedConfig, context: int, refusal: str | None, tmp_path: Path
) -> None:
    save_byte_model(tmp_path)
    AutoModelForCausalLM.from_config(model).save_pretrained(tmp_path)
    config = EngineConfig.model_validate(
        {
            "mode": "serve",
            "checkpoint_root_dir": str(tmp_path / "job"),
            "model": {"model_path": str(tmp_path), "max_model_len": context},
        }
    )
    if refusal is None:
        load_engine(config)[0].stop()
    else:
        with pytest.raises(ConfigError, match=refusal):
            load_engine(config)
