"""The embedded engine's loss of `mix` beside that which Trinity's own class computes from the same step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from real_trinity import Installation
from tiny_model import save_byte_model
from torch.nn import functional
from transformers import AutoModelForCausalLM

from slipstream.embedded.config import EngineConfig
from slipstream.embedded.experiences import Experience
from slipstream.embedded.learning import Learner, MixedMetrics

MU = 0.3
SAMPLED = [([5, 17, 42], [7, 30, 11], 1.3, 0.05), ([8, 9], [100, 4], -0.4, -0.1), ([8, 9], [4], 0.9, 0.5)]
"""Prompt, answer, advantage, and how much likelier its tokens are by now; the last is clipped."""
TAUGHT = [([5, 17, 42], [7, 8, 9]), ([5, 17, 42], [7, 3]), ([5, 6], [11])]


def test_it_is_trinitys(installation: Installation, tmp_path: Path) -> None:
    save_byte_model(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32).eval()

    def logps(prompt: Sequence[int], answer: Sequence[int]) -> list[float]:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
        return (-functional.cross_entropy(logits, torch.tensor(answer), reduction="none")).tolist()

    config = EngineConfig.model_validate(
        {
            "mode": "train",
            "checkpoint_root_dir": str(tmp_path),
            "model": {"model_path": str(tmp_path / "model"), "max_model_len": 512},
            "algorithm": {"algorithm_type": "mix", "policy_loss_fn_args": {"mu": MU}},
            "trainer": {"dtype": "float32"},
        }
    )
    rows, batch = [], []
    for prompt, answer, advantage, likelier in SAMPLED:
        now = logps(prompt, answer)
        before = [value - likelier for value in now]
        rows.append({"logprobs": now, "sampled": before, "advantage": advantage, "taught": False})
        ids = (np.array(prompt, np.int32), np.array(answer, np.int32))
        batch.append(Experience(0, "m", "t", 0, 0.0, advantage, *ids, np.array(before, np.float32), 0))
    for prompt, answer in TAUGHT:
        now = logps(prompt, answer)
        rows.append({"logprobs": now, "sampled": [0.0] * len(now), "advantage": 0.0, "taught": True})

    expected = installation.run("compute_mix_loss", given=json.dumps([MU, rows]))[0]
    given = [(np.array(prompt, np.int32), np.array(answer, np.int32)) for prompt, answer in TAUGHT]
    measured = Learner(config, tmp_path / "model", tmp_path).accumulate(batch, given)

    assert isinstance(measured, MixedMetrics)
    assert measured.policy_loss == pytest.approx(expected["usual/pg_loss"], rel=1e-4)
    assert measured.sft_loss == pytest.approx(expected["expert/sft_loss"], rel=1e-4)
    assert measured.loss == pytest.approx(expected["loss"], rel=1e-4)
