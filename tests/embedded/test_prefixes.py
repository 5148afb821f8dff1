from __future__ import annotations

import torch
from torch import Tensor

from slipstream.embedded.engines.prefixes import PrefixCache


def entry(first: int, tokens: int) -> tuple[list[int], Tensor]:
    """Tokens, and a state of 8 bytes for each of them, which holds the tokens."""
    ids = list(range(first, first + tokens))
    return ids, torch.tensor(ids, dtype=torch.float32).expand(1, 2, 1, 1, tokens)[..., None].clone()


def found(prefixes: PrefixCache, tokens: list[int]) -> list[int]:
    state = prefixes.longest(tokens)
    return [] if state is None else state[0, 0, 0, 0, :, 0].tolist()


def test_the_longest_common_beginning_is_found() -> None:
    prefixes = PrefixCache(most_bytes=1000)
    prefixes.add(*entry(100, 3))
    prefixes.add(*entry(200, 9))

    assert found(prefixes, [200, 201, 202, 7]) == [200, 201, 202]
    assert found(prefixes, [100, 101, 102, 103]) == [100, 101, 102]
    assert found(prefixes, [5]) == found(prefixes, []) == []


def test_the_oldest_make_room_for_the_newest() -> None:
    prefixes = PrefixCache(most_bytes=1000)
    for first in (100, 200, 300):
        prefixes.add(*entry(first, 50))

    assert [found(prefixes, [first]) for first in (100, 200, 300)] == [[], [200], [300]]
    prefixes.clear()
    assert found(prefixes, [200]) == []


def test_there_are_at_most_256() -> None:
    prefixes = PrefixCache(most_bytes=10**6)
    for first in range(0, 3000, 10):
        prefixes.add(*entry(first, 1))

    assert len(prefixes) == 256
    assert found(prefixes, [2990]) == [2990]


def test_a_conversation_that_goes_on_takes_the_place_of_its_beginning() -> None:
    prefixes = PrefixCache(most_bytes=1000)
    prefixes.add(*entry(100, 40))
    prefixes.add(*entry(200, 40))
    prefixes.add(*entry(100, 80))

    assert len(prefixes) == 2


def test_what_is_larger_than_all_room_is_not_kept() -> None:
    prefixes = PrefixCache(most_bytes=1000)
    prefixes.add(*entry(100, 126))

    assert len(prefixes) == 0
