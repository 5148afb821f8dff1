from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from slipstream.embedded.engines.batch import Batch


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32).eval()


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def alone(model: PreTrainedModel, tokens: list[int]) -> Tensor:
    """The logits after these tokens, without batch and without cache."""
    return model(torch.tensor([tokens]), logits_to_keep=1).logits[0, -1]


@contextmanager
def reading(model: PreTrainedModel) -> Iterator[list[int]]:
    """How many tokens each pass through the model reads."""
    read: list[int] = []
    hook = model.register_forward_pre_hook(
        lambda _, __, given: read.append(given["input_ids"].numel()), with_kwargs=True
    )
    try:
        yield read
    finally:
        hook.remove()


def test_rows_that_join_and_leave_do_not_disturb_one_another(model: PreTrainedModel) -> None:
    """Every row gets the logits it would get alone, whatever its neighbours do, past the cache's first growth."""
    chance = random.Random(1)
    batch = Batch(model)
    rows: list[list[int]] = []
    for turn in range(40):
        leaving = [row for row in rows if chance.random() < 0.08]
        if leaving:
            batch.keep([index for index, row in enumerate(rows) if row not in leaving])
            rows = [row for row in rows if row not in leaving]
        if turn % 7 == 0:
            prompts = [[chance.randrange(3, 49152) for _ in range(chance.randint(1, 60))] for _ in range(3)]
            logits = batch.join(prompts)
            rows += prompts
            for prompt, row_logits in zip(prompts, logits, strict=True):
                assert torch.allclose(row_logits, alone(model, prompt), atol=1e-3)
        tokens = [chance.randrange(3, 49152) for _ in rows]
        logits = batch.step(tokens)
        for row, token in zip(rows, tokens, strict=True):
            row.append(token)
        checked = chance.randrange(len(rows))
        assert torch.allclose(logits[checked], alone(model, rows[checked]), atol=1e-3)


def test_the_cache_grows_with_long_responses(model: PreTrainedModel) -> None:
    batch = Batch(model)
    row = [5, 6, 7]
    batch.join([row])
    for _ in range(150):
        logits = batch.step([9])

    assert torch.allclose(logits[0], alone(model, [*row, *[9] * 150]), atol=1e-3)


def test_equal_prompts_start_from_the_same_logits(model: PreTrainedModel) -> None:
    logits = Batch(model).join([[4, 5], [6], [4, 5]])

    assert torch.equal(logits[0], logits[2])
    assert not torch.equal(logits[0], logits[1])


def test_prompts_that_begin_alike_get_the_logits_they_would_get_alone(model: PreTrainedModel) -> None:
    """What they share is read once; rows of another length are there before, and all go on afterwards."""
    chance = random.Random(2)
    system = [chance.randrange(3, 49152) for _ in range(90)]
    prompts = [[*system, *(chance.randrange(3, 49152) for _ in range(rest))] for rest in (1, 30, 7)]
    prompts += [[8, 9], system, prompts[1]]
    batch = Batch(model)
    batch.join([[5] * 20])
    with reading(model) as read:
        logits = batch.join(prompts)

    assert sum(read) <= 89 + 4 * 31 + 2
    for prompt, row_logits in zip(prompts, logits, strict=True):
        assert torch.allclose(row_logits, alone(model, prompt), atol=1e-3)
    logits = batch.step([7] * 7)
    for prompt, row_logits in zip([[5] * 20, *prompts], logits, strict=True):
        assert torch.allclose(row_logits, alone(model, [*prompt, 7]), atol=1e-3)


def test_a_prompt_that_comes_later_is_read_only_where_no_row_holds_it(model: PreTrainedModel) -> None:
    """The rows have padding by then, and tokens of their answers."""
    chance = random.Random(3)
    system = [chance.randrange(3, 49152) for _ in range(90)]
    batch = Batch(model)
    batch.join([[5, 6], [*system, 8], [9] * 120])
    batch.step([7, 7, 7])
    batch.keep([1, 2])
    prompts = [[*system, 8], [*system, 10, 11]]
    with reading(model) as read:
        logits = batch.join(prompts)

    assert sum(read) <= 4
    for prompt, row_logits in zip(prompts, logits, strict=True):
        assert torch.allclose(row_logits, alone(model, prompt), atol=1e-3)
    unpadded = [*system, 12, 13, 14]
    assert torch.allclose(batch.join([unpadded])[0], alone(model, unpadded), atol=1e-3)
    logits = batch.step([7] * 5)
    for row, row_logits in zip([[*system, 8, 7, 7], [*[9] * 120, 7, 7]], logits, strict=False):
        assert torch.allclose(row_logits, alone(model, row), atol=1e-3)


def test_a_conversation_is_gone_on_with_where_its_last_answer_ended(model: PreTrainedModel) -> None:
    """The next step of an agent, while nothing else is being answered."""
    chance = random.Random(4)
    prompt = [chance.randrange(3, 49152) for _ in range(60)]
    batch = Batch(model)
    batch.join([[5, 6], prompt])
    for token in (7, 8, 9):
        batch.step([token, token])
    batch.keep([])
    step = [*prompt, 7, 8, 9, 10, 11]
    with reading(model) as read:
        logits = batch.join([step])

    assert sum(read) == 2
    assert torch.allclose(logits[0], alone(model, step), atol=1e-3)
    batch.keep([])
    batch.forget()  # new weights
    with reading(model) as read:
        batch.join([step])
    assert sum(read) == len(step)


def test_a_batch_can_be_emptied_and_used_again(model: PreTrainedModel) -> None:
    batch = Batch(model)
    batch.join([[4, 5]])
    batch.keep([])

    assert torch.allclose(batch.join([[6, 7]])[0], alone(model, [6, 7]), atol=1e-3)
