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
from strict import Rig, Script, rig

CASES = int(os.environ.get("SLIPSTREAM_FUZZ", "3000"))
SEED = os.environ.get("SLIPSTREAM_FUZZ_SEED", "1")

REQUESTS = [
    b"GET /v1/models HTTP/1.1\r\nhost: s\r\naccept: */*\r\n\r\n",
    b"GET /feedback/x?a=b HTTP/1.1\r\nHost: s\r\nx-slipstream-key: slp_x\r\n\r\n",
    b'POST /v1/chat/completions HTTP/1.1\r\nhost: s\r\ncontent-type: a/b\r\ncontent-length: 12\r\n\r\n{"a": "b"}\r\n',
    b"POST /v1/x HTTP/1.1\r\nhost: s\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n6;a=b\r\n world\r\n0\r\n\r\n",
    b"POST /feedback HTTP/1.1\r\nhost: s\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nx-trailer: 1\r\n\r\n",
    b"POST /v1/x HTTP/1.1\r\nhost: s\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\nbody",
    b"POST /v1/x HTTP/1.1\r\nhost: s\r\nconnection: x-a, keep-alive\r\nx-a: 1\r\ncontent-length: 4\r\n\r\nbody",
    b"GET http://s:80/v1/x?q#f HTTP/1.1\r\nhost: s\r\n\r\n",
    b"GET /v1/x HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
    b"GET /v1/x HTTP/1.1\r\nhost: s\r\nconnection: upgrade\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n\r\n",
    b"HEAD /v1/x HTTP/1.1\r\nhost: s\r\ncontent-length: 0\r\n\r\n",
    b"DELETE /v1/x HTTP/1.1\r\nhost: s\r\nauthorization: Bearer sk-x\r\nconnection: close\r\n\r\n",
]

ANSWERS = [
    b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{"a": "b"}',
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nx: 1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: {}\n\ndata: [DONE]\n\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\ncontent-length: 2\r\nset-cookie: a=b\r\n\r\nno",
    b"HTTP/1.1 204 No Content\r\nx-a: 1\r\n\r\n",
    b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n",
]

TOKENS = [
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b"\x00",
        b" ",
        b"\t",
        b":",
        b",",
        b";",
        b"\x0b",
        b"\x0c",
        b"\x7f",
        b"\x85",
        b"\xa0",
        b"\xff",
        b"0",
        b"1",
        b"-",
        b"+",
        b"_",
        b"0x",
    ),
    *(
        b"\r\n\r\n",
        b"\n\n",
        b"\r\n ",
        b"\r\n\t",
        b"0\r\n\r\n",
        b"5\r\n",
        b"ffffffffffffffff",
        b"4294967296",
        b"18446744073709551616",
        b"HTTP/1.1 200 OK\r\n",
    ),
    *(
        b"Content-Length: 0\r\n",
        b"Content-Length: 5\r\n",
        b"content-length: 100\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: identity\r\n",
    ),
    *(
        b"transfer-encoding: chunked, x\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Connection: close\r\n",
        b"Connection: content-length\r\n",
        b"Host: other\r\n",
    ),
    *(
        b"Upgrade: websocket\r\n",
        b"Expect: 100-continue\r\n",
        b" chunked",
        b"chunked,",
        b"GET /v1/smuggled HTTP/1.1\r\n\r\n",
        b" HTTP/1.1\r\n",
        b" HTTP/1.0\r\n",
    ),
]


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


def test_requests_with_changes(proxy: Rig) -> None:
    came = Counter[str]()
    for number in range(CASES):
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
    assert came["refused"] > CASES / 10, came
    assert came["clean"] > CASES / 10, came


def test_answers_with_changes(proxy: Rig) -> None:
    came = Counter[str]()
    for number in range(CASES // 2):
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
    assert came["refused"] > CASES / 20, came
    assert came["passed"] > CASES / 20, came
