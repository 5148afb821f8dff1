from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from memory_limit import memory_limit
from tiny_model import save_byte_model

from slipstream.datasets.row import Kind, Provenance, Row, Source
from slipstream.datasets.trained_dataset import TrainedDataset
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.estimate import GIB, GPUS, Device, ModelShape, Setting, memory, seconds, smaller
from slipstream.embedded.training_plan import plan
from slipstream.embedded.training_report import report
from slipstream.embedded.usable_memory import usable_memory
from slipstream.errors import ConfigError

QWEN_7B: dict[str, Any] = {  # Qwen2.5-7B-Instruct's, as published
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}
SMOLLM2: dict[str, Any] = {
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}


def test_parameters_are_those_of_the_models() -> None:
    for said, published, adapters in ((QWEN_7B, 7.616e9, 161.5e6), (SMOLLM2, 134.515e6, 19.54e6)):
        model = ModelShape.of(said)
        assert model.parameters == pytest.approx(published, rel=1e-3)
        assert model.adapters(64) == pytest.approx(adapters, rel=1e-3)


def test_what_takes_less_memory_is_estimated_to() -> None:
    model = ModelShape.of(QWEN_7B)
    full = Setting("sft", tokens=16384)
    less = [
        replace(full, recomputes=False),
        full,
        replace(full, rank=64),
        replace(full, rank=64, bits=8),
        replace(full, rank=64, bits=4),
        replace(full, rank=64, bits=4, tokens=4096),
    ]

    totals = [memory(model, setting).total for setting in less]

    assert totals == sorted(totals, reverse=True)
    assert totals[1] > 16 * model.parameters, "weights, gradients and two moments in float32"
    assert memory(model, replace(full, algorithm="kto")).total > totals[1], "the reference is a second model"


def test_a_training_that_does_not_fit_is_told_what_would_make_it_fit() -> None:
    model, full = ModelShape.of(QWEN_7B), Setting("sft", tokens=16384)
    for name, count in (("a100-80g", 4), ("rtx-4090", 3), ("rtx-3060", 0)):
        gpu = GPUS[name]
        changes = smaller(model, full, gpu)
        assert len(changes) == count, name
        assert all(takes.total <= gpu.memory for _, takes in changes)
    machine = Device("cpu", 64 * 10**9, 1e11)
    assert not any("bit" in change for change, _ in smaller(model, full, machine)), "no CPU computes with 4 bits"


def test_the_article_s_table_is_reproduced_as_far_as_it_says_how() -> None:
    """4,000 dialogs, then 2,000 pairs, of 4,096 tokens with Qwen2.5-7B, rank 64, batch 4: 60 GB and 8 h, 70 GB and 4 h.

    Its times are those of 22% of the GPU's speed, in both lines.
    """
    model, gpu = ModelShape.of(QWEN_7B), replace(GPUS["a100-80g"], reached=0.22)
    dialogs, pairs = Setting("sft", 4 * 4096, rank=64), Setting("dpo", 8 * 4096, rank=64, bits=8)

    assert memory(model, dialogs).total / 1e9 == pytest.approx(60, rel=0.25)
    assert memory(model, pairs).total / 1e9 == pytest.approx(70, rel=0.05)
    assert seconds(model, dialogs, 4000 * 4096, 3, gpu) / 3600 == pytest.approx(8, rel=0.1)
    assert seconds(model, pairs, 2 * 2000 * 4096, 1, gpu) / 3600 == pytest.approx(4, rel=0.1)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Model directories: one whose rows are packed, and one that attends to a window, whose rows are not."""
    folder = tmp_path_factory.mktemp("models")
    save_byte_model(folder / "full")
    shutil.copytree(folder / "full", folder / "windowed")
    said = json.loads((folder / "full" / "config.json").read_text())
    said |= {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 64}
    (folder / "windowed" / "config.json").write_text(json.dumps(said))
    return {name: folder / name for name in ("full", "windowed")}


def run(model: Path, folder: Path, **trainer: Any) -> tuple[EngineConfig, list[Row], TrainedDataset]:
    """A run on rows of 65 to 128 tokens that begin with the same words."""
    words = "The order was sent to a wrong address, and the customer asks for a refund."
    rows = [
        Row(
            Kind.SFT,
            [{"role": "user", "content": f"{words} {number}"}],
            {"role": "assistant", "content": "yes"},
            Provenance("t", "s", "default", Source.POLICY),
        )
        for number in range(64)
    ]
    config = EngineConfig.model_validate(
        {
            "mode": "train",
            "checkpoint_root_dir": str(folder),
            "model": {"model_path": str(model), "max_model_len": 512},
            "algorithm": {"algorithm_type": "sft"},
            "buffer": {"train_batch_size": 64},
            "trainer": trainer,
        }
    )
    return config, rows, TrainedDataset("support", "d1", Kind.SFT)


def test_named_gpus_are_not_bound_by_what_this_machine_can(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    text = report(*run(models["windowed"], tmp_path))
    assert "here, 1024 tokens at once in float32: " in text
    assert "on a GPU, 4096 tokens at once in bfloat16: " in text
    assert "on a GPU, 4096 tokens at once in float32: " in report(*run(models["windowed"], tmp_path, dtype="float32"))


def test_the_estimate_of_rows_that_are_not_packed_has_what_pads_them(models: dict[str, Path], tmp_path: Path) -> None:
    packed, padded = (
        plan(*run(models[name], tmp_path, max_token_len_per_gpu=1024), tmp_path / name) for name in ("full", "windowed")
    )
    assert packed.table.longest < 128
    assert padded.on_gpu.setting.tokens == 8 * 128
    assert padded.on_gpu.tokens == 64 * 128
    assert packed.on_gpu.tokens < padded.on_gpu.tokens / 4, "the words that all begin with are computed once a batch"


def test_a_limit_of_memory_is_all_that_there_is_here() -> None:
    with memory_limit(3 * GIB) as limit:
        if limit is None:
            pytest.skip("control groups cannot be made here")
        command = "from slipstream.embedded.usable_memory import usable_memory; print(usable_memory())"
        run = subprocess.run(
            [*limit.command, sys.executable, "-c", command], capture_output=True, text=True, check=True
        )
    assert int(run.stdout) == 3 * GIB
    assert int(run.stdout) < usable_memory()


def test_a_configuration_that_is_none_is_refused_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for text in ("", "[]", "{}", json.dumps({**QWEN_7B, "num_experts": 8})):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"config\.json: expected the configuration of a dense decoder"):
            ModelShape.read(tmp_path)
    path.unlink()
    with pytest.raises(ConfigError, match=r"config\.json"):
        ModelShape.read(tmp_path)
