from __future__ import annotations

import math
import random
from collections import Counter

import pytest
import torch

from slipstream.embedded.engines.engine import Sampled, Sampling
from slipstream.embedded.engines.sampling import sample

# probabilities 0.5, 0.3, 0.15, 0.05 at temperature 1
LOGITS = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05]))


def draw(count: int, temperature: float = 1.0, **fields: float | int) -> list[Sampled]:
    row = Sampling(max_tokens=1, **fields)  # type: ignore[arg-type]
    sources = [random.Random(index) for index in range(count)]
    return sample(LOGITS.expand(count, -1), temperature, [row] * count, sources)


def shares(sampled: list[Sampled]) -> dict[int, float]:
    return {token: count / len(sampled) for token, count in Counter(one.token_id for one in sampled).items()}


@pytest.mark.slow
def test_tokens_come_as_often_as_they_are_likely() -> None:
    assert shares(draw(20_000)) == pytest.approx({0: 0.5, 1: 0.3, 2: 0.15, 3: 0.05}, abs=0.015)


def test_the_logprob_is_that_of_the_distribution_sampled_from() -> None:
    flat = [math.sqrt(p) for p in (0.5, 0.3, 0.15, 0.05)]  # temperature 2
    expected = [math.log(p / sum(flat)) for p in flat]

    sampled = draw(5_000, temperature=2.0)

    assert shares(sampled) == pytest.approx(
        {token: math.exp(logprob) for token, logprob in enumerate(expected)}, abs=0.03
    )
    for one in sampled[:50]:
        assert one.logprob == pytest.approx(expected[one.token_id], abs=1e-5)


@pytest.mark.slow
def test_top_p_cuts_the_unlikely_and_leaves_the_logprob() -> None:
    sampled = draw(5_000, top_p=0.6)

    assert shares(sampled) == pytest.approx({0: 0.625, 1: 0.375}, abs=0.03)
    assert {one.token_id: round(one.logprob, 4) for one in sampled} == {0: -0.6931, 1: -1.204}


def test_the_likeliest_token_always_stays() -> None:
    assert shares(draw(100, top_p=0.01)) == {0: 1.0}


def test_temperature_zero_takes_the_likeliest() -> None:
    sampled = draw(10, temperature=0)

    assert shares(sampled) == {0: 1.0}
    assert sampled[0].logprob == pytest.approx(math.log(0.5), abs=1e-5)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    row = Sampling(max_tokens=1)
    neighbour = Sampling(max_tokens=1, top_p=0.1)
    logits = LOGITS.expand(2, -1)

    first = [sample(LOGITS[None], 1.0, [row], [random.Random(seed)])[0] for seed in range(50)]
    second = [sample(logits, 1.0, [neighbour, row], [random.Random(-1), random.Random(seed)])[1] for seed in range(50)]

    assert [one.token_id for one in first] == [one.token_id for one in second]


def test_the_likeliest_tokens_are_reported_where_asked() -> None:
    [sampled] = draw(1, top_logprobs=2)

    assert [token for token, _ in sampled.top] == [0, 1]
    assert [logprob for _, logprob in sampled.top] == pytest.approx([math.log(0.5), math.log(0.3)], abs=1e-5)
