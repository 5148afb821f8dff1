"""vLLM as the engine, as far as no vLLM is needed; with a real one: tests/vllm_cpu."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from slipstream.embedded.config import EngineConfig
from slipstream.embedded.engines.loading import load_engine
from slipstream.errors import ConfigError


def test_a_python_that_is_not_there_is_named(explorer_config: EngineConfig) -> None:
    with pytest.raises(ConfigError, match="--vllm: expected the Python of an environment with vLLM, found /no/python"):
        load_engine(explorer_config, Path("/no/python"))


def test_a_python_without_vllm_is_shown_with_its_own_words(explorer_config: EngineConfig) -> None:
    with pytest.raises(ConfigError, match="vLLM did not start") as refused:
        load_engine(explorer_config, Path(sys.executable))

    assert "No module named 'vllm'" in str(refused.value)
    assert str(explorer_config.job_dir / "log" / "vllm.log") in str(refused.value)
