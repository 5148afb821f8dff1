from __future__ import annotations

import torch
from torch import Tensor

from slipstream.embedded.finished import Finished


def conversation(first: int, tokens: int) -> tuple[tuple[int, ...], Tensor]:
    """Tokens, and a room of 8 bytes for each of them."""
    return tuple(range(first, first + tokens)), torch.zeros(1, 2, 1, 1, tokens, 1)


def test_the_oldest_make_room_for_the_newest() -> None:
    finished = Finished(most_bytes=1000)
    for first in (100, 200, 300):
        finished.add(*conversation(first, 50))

    assert [tokens[0] for tokens in finished] == [200, 300]
    finished.clear()
    assert list(finished) == []
    for first in (100, 200):
        finished.add(*conversation(first, 50))
    assert len(list(finished)) == 2


def test_a_conversation_that_goes_on_takes_the_place_of_its_beginning() -> None:
    finished = Finished(most_bytes=1000)
    finished.add(*conversation(100, 40))
    finished.add(*conversation(200, 40))
    finished.add(*conversation(100, 80))

    assert [len(tokens) for tokens in finished] == [40, 80]


def test_what_is_too_short_or_too_long_is_not_kept() -> None:
    finished = Finished(most_bytes=1000)
    finished.add(*conversation(100, 100))
    finished.add(*conversation(100, 5))
    finished.add(*conversation(100, 126))

    assert [len(tokens) for tokens in finished] == [100]
