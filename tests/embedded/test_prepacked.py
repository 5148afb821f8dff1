from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_model import tiny_llama
from transformers import AutoModelForCausalLM, PreTrainedModel

from slipstream.embedded.prepacked import prepack


def logits(model: PreTrainedModel) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.arange(3, 39).view(4, 9)).logits


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_prepacked_model_computes_the_same(tiny_model: Path, dtype: torch.dtype) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=dtype).eval()
    before, names = logits(model), list(model.state_dict())
    prepack(model)

    assert torch.allclose(logits(model), before, atol=1e-4)
    assert list(model.state_dict()) == names


def test_new_weights_count_after_packing_again(tiny_model: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32).eval()
    prepack(model)
    newer = tiny_llama(seed=1).eval()
    with torch.inference_mode():
        for name, weight in model.state_dict().items():
            weight.copy_(newer.state_dict()[name])
    prepack(model)

    assert torch.allclose(logits(model), logits(newer), atol=1e-4)
