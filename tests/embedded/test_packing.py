from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from slipstream.embedded.packing import pack, split


@pytest.mark.parametrize("lengths", [[5], [1, 1], [4, 1, 7]])
def test_a_pack_scores_as_the_separate_sequences(lengths: list[int]) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
    )
    model = LlamaForCausalLM(config).eval()
    prompt = torch.randint(0, 40, (6,))
    completions = [torch.randint(0, 40, (length,)) for length in lengths]

    packed = pack(prompt, completions)
    with torch.no_grad():
        together = model(
            input_ids=packed.input_ids,
            position_ids=packed.position_ids,
            attention_mask=packed.attention_mask,
            logits_to_keep=packed.scored,
        ).logits[0]
        alone = [model(input_ids=torch.cat([prompt, c])[None]).logits[0, 5:-1] for c in completions]

    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=1e-4)


def test_a_group_is_split_where_it_would_be_too_long() -> None:
    assert split(10, [5, 5, 5], most_tokens=100) == [[0, 1, 2]]
    assert split(10, [5, 5, 5], most_tokens=20) == [[0, 1], [2]]
    assert split(10, [50, 1, 2], most_tokens=20) == [[0], [1, 2]]
