"""A fuzzer with the judge of the raw suites: requests and answers with bytes changed at random, from a seed.

`SLIPSTREAM_FUZZ=200000 pytest tests/proxy/test_raw_fuzz.py` does more, and `SLIPSTREAM_FUZZ_SEED` others. A case that
fails names its number and its bytes.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator

import pytest
from reading import read_answers
from seeds import ANSWERS, REQUESTS, TOKENS
from strict import Rig, Script, rig

CASES = pytest.mark.parametrize(
    "cases", [600, pytest.param(int(os.environ.get("SLIPSTREAM_FUZZ", "3000")), marks=pytest.mark.slow)]
)
SEED = os.environ.get("SLIPSTREAM_FUZZ_SEED", "1")


@pytest.fixture(scope="module")
def proxy() -> Iterator[Rig]:
    with rig(idle_timeout=10, first_byte_timeout=10) as running:
        yield running


def mutated(data: bytes, seeds: list[bytes], dice: random.Random) -> bytes:
    """One to four changes; of every tenth none."""
    for _ in range(dice.choice((0, 1, 1, 1, 1, 2, 2, 2, 3, 4))):
        at = dice.randrange(len(data) + 1)
        to = min(len(data), at + dice.choice((1, 1, 2, 4, 16)))
        how = dice.randrange(8)
        if how == 0:  # a bit
            data = data[:at] + bytes(byte ^ 1 << dice.randrange(8) for byte in data[at : at + 1]) + data[at + 1 :]
        elif how == 1:  # a byte
            data = data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]
        elif how == 2:  # less
            data = data[:at] + data[to:]
        elif how == 3:  # twice
            data = data[:to] + data[at:]
        elif how == 4:  # another's end
            other = dice.choice(seeds)
            data = data[:at] + other[dice.randrange(len(other)) :]
        elif how == 5:  # a token over what was there
            data = data[:at] + dice.choice(TOKENS) + data[to:]
        else:  # a token, mostly where a line begins
            lines = [place + 2 for place in range(len(data)) if data[place : place + 2] == b"\r\n"]
            at = dice.choice(lines) if lines and dice.random() < 0.6 else at
            data = data[:at] + dice.choice(TOKENS) + data[at:]
    return data


def in_pieces(data: bytes, dice: random.Random) -> list[bytes]:
    if dice.random() < 0.7:
        return [data]
    at = dice.randrange(1, len(data) + 1)
    return [piece for piece in (data[:at], data[at:]) if piece]


@CASES
def test_requests_with_changes(proxy: Rig, cases: int) -> None:
    came = Counter[str]()
    for number in range(cases):
        dice = random.Random(f"{SEED}-{number}")
        data = mutated(dice.choice(REQUESTS), REQUESTS, dice)
        if dice.random() < 0.3:
            data += dice.choice(REQUESTS)
        if not data:
            continue
        try:
            struck = proxy.strike(*in_pieces(data, dice), patience=0.3)
            refused = proxy.judged(struck, stricter=True)
            if number % 5 == 0:
                proxy.next_is_sound()
        except AssertionError as error:
            raise AssertionError(f"case {number} of seed {SEED}: {data!r}") from error
        came["refused" if refused else struck.sent.state] += 1
    assert came["refused"] > cases / 10, came
    assert came["clean"] > cases / 10, came


@CASES
def test_answers_with_changes(proxy: Rig, cases: int) -> None:
    came = Counter[str]()
    for number in range(cases // 2):
        dice = random.Random(f"{SEED}-answer-{number}")
        data = mutated(dice.choice(ANSWERS), ANSWERS, dice)
        pieces = tuple(in_pieces(data, dice)) if data else (b"",)
        meant = read_answers(data, [b"POST"], ended=True)
        proxy.scripts = [Script(pieces, close=True)]
        try:
            struck = proxy.strike(b"POST /v1/x HTTP/1.1\r\nhost: s\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}")
            answers = struck.answers()
            assert struck.closed
            assert answers.state == "clean" or (answers.state == "partial" and not answers.messages), struck.received
            said = answers.messages[0] if answers.messages else None
            if said is None or (said.first[0] == b"502" and b"upstream_unreachable" in said.body):
                came["refused"] += 1
            else:
                assert meant.messages, struck.received
                whole = meant.messages[0]
                assert (said.first, said.body, said.end_to_end) == (whole.first, whole.body, whole.end_to_end)
                came["passed"] += 1
            proxy.next_is_sound()
        except AssertionError as error:
            raise AssertionError(f"answer {number} of seed {SEED}: {data!r}") from error
    assert came["refused"] > cases / 20, came
    assert came["passed"] > cases / 20, came
