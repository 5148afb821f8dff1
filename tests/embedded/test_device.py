"""The precision `auto` is what the CPU is fast at, for Explorer and Trainer alike."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from slipstream.embedded import serving
from slipstream.embedded.config import EngineConfig, load_config
from slipstream.embedded.device import computes_in_bfloat16
from slipstream.embedded.engines.transformers_engine import load_transformers_engine

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("features", "dtype"), [({"avx2": True, "amx_bf16": False}, torch.float32), ({"avx512_bf16": True}, torch.bfloat16)]
)
def test_the_explorer_computes_in_what_the_cpu_has(
    features: dict[str, bool],
    dtype: torch.dtype,
    explorer_config: EngineConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: features)
    rollout = explorer_config.explorer.rollout_model.model_copy(update={"dtype": "auto"})
    explorer = explorer_config.explorer.model_copy(update={"rollout_model": rollout})
    config = explorer_config.model_copy(update={"explorer": explorer})
    engine = load_transformers_engine(config, Path(config.model.model_path), eos_ids=[0])
    assert engine._model.dtype == dtype
    assert computes_in_bfloat16("bfloat16", torch.device("cpu")), "as configured, on any CPU"
    assert not computes_in_bfloat16("float32", torch.device("cpu"))


def test_what_a_laptop_serves_is_computed_in_what_its_cpu_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CHECKPOINT_ROOT_DIR", "MODEL_PATH", "PWD"):
        monkeypatch.setenv(name, str(tmp_path))
    served = [load_config(ROOT / "explorer.yaml", "serve", [ROOT / "overlays" / "quickstart.yaml"])]
    monkeypatch.setattr(serving, "serve", served.append)
    serving.serve_frozen(tmp_path, 8011)
    assert [config.explorer.rollout_model.dtype for config in served] == ["auto", "auto"]
