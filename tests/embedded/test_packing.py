from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from slipstream.embedded.packing import pack, split

PROMPT = [3, 1, 4, 1, 5, 9]
STEP = [*PROMPT, 2, 6, 11, 12]  # what an agent's next step has before it: the prompt, its answer, and more


def rows(*written: tuple[list[int], list[int]]) -> list[tuple[Tensor, Tensor]]:
    return [(torch.tensor(prompt), torch.tensor(answer)) for prompt, answer in written]


@pytest.mark.parametrize(
    ("written", "tokens", "masked"),
    [
        pytest.param([(PROMPT, [2, 6, 5])], 9, False, id="one answer"),
        pytest.param([(PROMPT, [7]), (PROMPT, [8])], 8, True, id="a group's answers of one token"),
        pytest.param([(PROMPT, [2, 6]), (PROMPT, [7]), (PROMPT, [2, 6, 5])], 12, True, id="answers unsorted"),
        pytest.param([(PROMPT, [2, 6]), (PROMPT, [2, 6])], 8, False, id="the same answer twice"),
        pytest.param([(PROMPT, [2, 6]), (STEP, [13, 14])], 12, False, id="two steps of a run"),
        pytest.param([(PROMPT, [2, 6]), (STEP, [13]), (STEP, [14]), (PROMPT, [7])], 13, True, id="a tree"),
        pytest.param([(PROMPT, [2, 6]), ([20, 21], [22])], 11, True, id="strangers"),
    ],
)
@pytest.mark.parametrize("multiple", [1, 16, 128])
def test_a_pack_scores_as_the_separate_sequences(
    written: list[tuple[list[int], list[int]]], tokens: int, masked: bool, multiple: int
) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
    )
    model = LlamaForCausalLM(config).eval()

    packed = pack(rows(*written), multiple)
    with torch.no_grad():
        together = model(
            input_ids=packed.input_ids,
            position_ids=packed.position_ids,
            attention_mask=packed.attention_mask,
            logits_to_keep=packed.scored,
        ).logits[0, : packed.answered]
        alone = [
            model(input_ids=torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
            for prompt, answer in written
        ]

    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=1e-4)
    assert packed.input_ids.shape[1] == tokens + -tokens % multiple
    assert len(packed.scored) % multiple == 0
    assert (packed.attention_mask is not None) == masked


@pytest.mark.parametrize(
    "written", [pytest.param([(PROMPT, [7]), (PROMPT, [8])], id="masked"), pytest.param([(PROMPT, [7])], id="unmasked")]
)
def test_a_pack_is_where_its_rows_are(written: list[tuple[list[int], list[int]]]) -> None:
    """Another device is the default one here, as the CPU is where the rows are on a GPU."""
    given = rows(*written)
    here = pack(given)
    with torch.device("meta"):
        packed = pack(given)

    for name in ("input_ids", "position_ids", "attention_mask", "scored"):
        expected = getattr(here, name)
        found = getattr(packed, name)
        assert (found is None and expected is None) or torch.equal(found, expected), name


def test_packs_have_few_shapes() -> None:
    """oneDNN keeps memory for each shape that it has met."""
    shapes = set()
    for length in range(1, 1000, 7):
        packed = pack([(torch.arange(length), torch.arange(1000, 1000 + length // 3 + 1))])
        shapes.add((packed.input_ids.shape[1], len(packed.scored)))
    assert len(shapes) <= 24


def row(prompt: list[int], answer_length: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """An answer like no other."""
    first = next(ANSWERS)
    return np.array(prompt, np.int32), np.arange(first, first + answer_length, dtype=np.int32)


ANSWERS = iter(range(1000, 1_000_000, 1000))


def test_a_group_is_split_where_it_would_be_too_long() -> None:
    prompt = list(range(10))
    assert split([row(prompt, 5) for _ in range(3)], most_tokens=100) == [[0, 1, 2]]
    assert split([row(prompt, 5) for _ in range(3)], most_tokens=20) == [[0, 1], [2]]
    assert split([row(prompt, length) for length in (50, 1, 2)], most_tokens=20) == [[0], [1, 2]]
    same = row(prompt, 5)
    assert split([same] * 5, most_tokens=15) == [[0, 1, 2], [3, 4]]  # one sequence, but 25 tokens to score


def test_prompts_that_share_enough_go_together() -> None:
    system, other = list(range(100, 150)), list(range(200, 250))
    batch = [row([*system, 1], 5), row([*other, 1], 5), row([*system, 2, 3], 5), row([1, 2], 5), row([1, 3], 5)]

    assert split(batch, most_tokens=1000) == [[3], [4], [0, 2], [1]]
