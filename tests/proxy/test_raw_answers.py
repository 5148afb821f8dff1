"""Malformed, split and poisoned answers, over raw sockets: the agent gets what production meant, or a 502, or a cut
that it sees; never a header or an answer that production did not send, and never another agent's."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest
from reading import Message, read_answers
from strict import PATIENCE, Rig, Script, Struck, rig

pytestmark = pytest.mark.sampled

CONTROLS = [byte for byte in (*range(0x20), 0x7F) if byte not in b"\t\r\n"]
OK = b"HTTP/1.1 200 OK\r\n"
SECOND = b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\nx-poison: 1\r\n\r\npoisoned"
GET = b"GET /v1/x HTTP/1.1\r\nhost: s\r\n\r\n"


@pytest.fixture(scope="module")
def proxy() -> Iterator[Rig]:
    with rig() as running:
        yield running


def answered(proxy: Rig, *pieces: bytes, close: bool = True, method: bytes = b"GET") -> tuple[Struck, Message | None]:
    """Let production answer with these bytes; what came of it, and what they mean where they mean one thing.

    Two agents ask next, one on the same connection where it goes on: each gets its own answer.
    """
    meant = read_answers(b"".join(pieces), [method], ended=close).messages
    proxy.scripts = [Script(pieces, close)]
    struck = proxy.strike(GET.replace(b"GET", method, 1) + GET.replace(b"/x", b"/behind"))
    proxy.scripts = []
    assert not proxy.violations
    answers = struck.answers()
    assert answers.state != "bad", (answers.why, struck.received)
    assert b"poison" not in struck.received
    if len(answers.messages) > 1:
        assert answers.messages[1].body == b"production GET /v1/behind 0"
    else:
        assert struck.closed
    proxy.next_is_sound()
    return struck, meant[0] if meant else None


def refused(proxy: Rig, *pieces: bytes, close: bool = True, method: bytes = b"GET") -> None:
    """The agent gets a 502, or an answer whose end does not come."""
    struck, meant = answered(proxy, *pieces, close=close, method=method)
    assert meant is None, "the strict reader lets it pass"
    assert is_refused(struck), struck.received


def is_refused(struck: Struck) -> bool:
    answers = struck.answers()
    cut = not answers.messages and answers.state == "partial" and struck.closed
    return cut or answers.messages[0].first[0] == b"502"


def passes(proxy: Rig, *pieces: bytes, close: bool = False, method: bytes = b"GET") -> None:
    """The agent gets what production meant."""
    struck, meant = answered(proxy, *pieces, close=close, method=method)
    assert meant is not None
    assert_same(struck.answers().messages[0], meant)


def is_meant_or_refused(proxy: Rig, *pieces: bytes, close: bool = True, method: bytes = b"GET") -> None:
    struck, meant = answered(proxy, *pieces, close=close, method=method)
    if not is_refused(struck):
        assert meant is not None, struck.received
        assert_same(struck.answers().messages[0], meant)


def assert_same(got: Message, meant: Message) -> None:
    assert got.first == meant.first
    assert got.body == meant.body
    assert got.end_to_end == meant.end_to_end


def named(cases: list[bytes]) -> list[pytest.param]:  # type: ignore[valid-type]
    return [pytest.param(case, id=f"{number:02}-{case[:40]!r}") for number, case in enumerate(cases)]


# Header injection and malformed heads

BAD_FIELDS = [
    *(
        b"x",
        b": 1",
        b" x: 1",
        b"x : 1",
        b"x\t: 1",
        b"x y: 1",
        b"\xffx: 1",
        b"(x): 1",
        b"x,y: 1",
        b"x/y: 1",
        b"x@y: 1",
        b'"x": 1',
        b"x\\: 1",
    ),
    *(
        b"x: 1\rset-cookie: poison=1",
        b"x: 1\nset-cookie: poison=1",
        b"x: 1\r\n set-cookie: poison=1",
        b"x: 1\r\r\nset-cookie: poison=1",
    ),
    *(
        b"x: 1\n\rset-cookie: poison=1",
        b"x: 1\x00set-cookie: poison=1",
        b"x: 1\x0bset-cookie: poison=1",
        b"x:\r\n poison",
        b"x: 1\n\nHTTP/1.1 200 OK",
    ),
    *(b"\nset-cookie: poison=1", b"\rset-cookie: poison=1", b"HTTP/1.1 200 OK", b"\x00: 1", b"x\x00: 1"),
]


@pytest.mark.parametrize("line", named(BAD_FIELDS))
@pytest.mark.parametrize("at", ["first", "last"])
def test_header_line_that_is_none(proxy: Rig, line: bytes, at: str) -> None:
    lines = [line, b"content-length: 2"] if at == "first" else [b"content-length: 2", line]
    refused(proxy, OK + b"\r\n".join([*lines, b"", b"ok"]))


@pytest.mark.parametrize("byte", CONTROLS, ids=hex)
@pytest.mark.parametrize("line", [b"x%ca: 1", b"x%c: 1", b"x:%c1", b"x: a%cb", b"x: 1%c", b"set-cookie: a%cb"])
def test_control_character_in_a_header_line(proxy: Rig, line: bytes, byte: int) -> None:
    refused(proxy, OK + line % byte + b"\r\ncontent-length: 2\r\n\r\nok")


BAD_LINES = [
    *(
        b"HTTP/1.1",
        b"HTTP/1.1 ",
        b"HTTP/1.1 2",
        b"HTTP/1.1 20",
        b"HTTP/1.1 2000 OK",
        b"HTTP/1.1 20x OK",
        b"HTTP/1.1 -20 OK",
        b"HTTP/1.1 +200 OK",
    ),
    *(
        b"HTTP/1.1 000 OK",
        b"HTTP/1.1 099 OK",
        b"HTTP/1.1 600 OK",
        b"HTTP/1.1 999 OK",
        b"HTTP/1.1  200 OK",
        b"HTTP/1.1\t200 OK",
        b"HTTP/1.1200 OK",
    ),
    *(b"HTTP/2 200 OK", b"HTTP/1.10 200 OK", b"http/1.1 200 OK", b"HTTP 200 OK"),
    *(
        b"ICY 200 OK",
        b"200 OK",
        b" HTTP/1.1 200 OK",
        b"GET / HTTP/1.1",
        b"<html>",
        b"\x16\x03\x01",
        b"\x00",
        b"HTTP/1.1 200 O\rK",
    ),
    *(
        b"HTTP/1.1 200 OK\nx: poison",
        b"HTTP/1.1 200 OK\rx: poison",
        b"HTTP/1.1 101 Switching Protocols",
        b"HTTP/1.1 \xd9\xa2\xd9\xa0\xd9\xa0 OK",
    ),
]


@pytest.mark.parametrize("line", named(BAD_LINES))
def test_status_line_that_is_none(proxy: Rig, line: bytes) -> None:
    refused(proxy, line + b"\r\ncontent-length: 2\r\n\r\nok")


@pytest.mark.parametrize("byte", CONTROLS, ids=hex)
def test_control_character_in_a_status_line(proxy: Rig, byte: int) -> None:
    is_meant_or_refused(proxy, b"HTTP/1.1 200 O%cK\r\ncontent-length: 2\r\n\r\nok" % byte)
    for line in (b"HTTP/1.1 200%c", b"HTTP/1.%c1 200 OK"):
        refused(proxy, line % byte + b"\r\ncontent-length: 2\r\n\r\nok")


@pytest.mark.parametrize("version", [b"0.9", b"1.2", b"1.9", b"2.0", b"3.0"], ids=bytes.decode)
def test_version_that_is_not_spoken_here(proxy: Rig, version: bytes) -> None:
    is_meant_or_refused(proxy, b"HTTP/" + version + b" 200 OK\r\ncontent-length: 2\r\n\r\nok")


@pytest.mark.parametrize("status", [b"000", b"001", b"099", b"600", b"999"], ids=bytes.decode)
def test_body_of_an_answer_without_a_status_is_not_taken_for_one(proxy: Rig, status: bytes) -> None:
    for framing in (b"content-length: %d\r\n\r\n" % len(SECOND), b"\r\n"):
        refused(proxy, b"HTTP/1.1 " + status + b" Odd\r\n" + framing + SECOND)
        refused(proxy, b"HTTP/1.1 " + status + b" Odd\r\n" + framing, SECOND)


@pytest.mark.parametrize("end", named([b"\n", b"\r", b"\r\r\n", b"\n\r", b"\x00\r\n"]))
def test_status_line_that_ends_otherwise(proxy: Rig, end: bytes) -> None:
    is_meant_or_refused(proxy, b"HTTP/1.1 200 OK" + end + b"content-length: 2\r\n\r\nok")


# Framing

BAD_LENGTHS = [
    *(
        b"",
        b"+2",
        b"-2",
        b"0x2",
        b"2h",
        b"2.0",
        b"2e0",
        b"1_0",
        b"two",
        b"2,",
        b"2,3",
        b"2, 2",
        b"2 2",
        b"2;2",
        b'"2"',
        b"\xa02",
        b"\xd9\xa2",
        b"%32",
    ),
    *(b"18446744073709551618", b"9" * 20, b"9" * 400, b"2\x00", b"2\r\n 2", b"2\n3", b"2\r3", b"NaN"),
]


@pytest.mark.parametrize("value", named(BAD_LENGTHS))
def test_length_that_is_no_number(proxy: Rig, value: bytes) -> None:
    refused(proxy, OK + b"content-length: " + value + b"\r\n\r\nok" + SECOND)


@pytest.mark.parametrize(
    "pair",
    list(itertools.permutations((b"2", b"3", b"0", b"02", b""), 2)),
    ids=lambda pair: f"{pair[0].decode()}-{pair[1].decode()}",
)
def test_two_lengths(proxy: Rig, pair: tuple[bytes, bytes]) -> None:
    refused(proxy, OK + b"content-length: " + pair[0] + b"\r\nContent-Length: " + pair[1] + b"\r\n\r\nok" + SECOND)


CODINGS = [
    *(
        b"",
        b"identity",
        b"gzip",
        b"x",
        b"xchunked",
        b"chunkedx",
        b"chunked, gzip",
        b"chunked,chunked",
        b"chunked;q=1",
        b'"chunked"',
        b"chun ked",
    ),
    *(
        b"\x0bchunked",
        b"chunked\x00",
        b"\xa0chunked",
        b"chunked\r\n x",
        b"\r\n chunked",
        b"gzip, chunked",
        b"identity, chunked",
        b"chunked\r\ntransfer-encoding: x",
    ),
]


@pytest.mark.parametrize("value", named(CODINGS))
@pytest.mark.parametrize(
    "length", [b"", b"content-length: 2\r\n", b"content-length: 12\r\n"], ids=["alone", "shorter", "as-long"]
)
def test_coding_that_is_not_chunked_alone(proxy: Rig, value: bytes, length: bytes) -> None:
    """An answer may end with its connection; so a coding that is not understood may be passed on, but never its end
    guessed."""
    struck, _ = answered(proxy, OK + length + b"transfer-encoding: " + value + b"\r\n\r\n2\r\nok\r\n0\r\n\r\n")
    if not is_refused(struck):
        assert struck.answers().messages[0].body in (b"ok", b"2\r\nok\r\n0\r\n\r\n")


BAD_CHUNKS = [
    *(
        b"zz\r\nok\r\n",
        b"\r\nok\r\n",
        b" 2\r\nok\r\n",
        b"+2\r\nok\r\n",
        b"-2\r\nok\r\n",
        b"0x2\r\nok\r\n",
        b"2_0\r\nok\r\n",
        b"2 2\r\nok\r\n",
        b"2\nok\r\n",
    ),
    *(
        b"2\rok\r\n",
        b"2\r\nok\n",
        b"2\r\nok\r",
        b"2\r\nokXX",
        b"2\r\nok",
        b"1\r\nok\r\n",
        b"2\r\n\r\nok\r\n",
        b"10000000000000002\r\nok\r\n",
        b"F" * 17 + b"\r\nok\r\n",
    ),
    *(
        b"2;\x00\r\nok\r\n",
        b"2;a\nb\r\nok\r\n",
        b"2;a\rb\r\nok\r\n",
        b"2\x00\r\nok\r\n",
        b"2\x0b\r\nok\r\n",
        b"g\r\nok\r\n",
        b"2h\r\nok\r\n",
        b"%32\r\nok\r\n",
    ),
]


@pytest.mark.parametrize("chunk", named(BAD_CHUNKS))
@pytest.mark.parametrize("before", [b"", b"4\r\ngood\r\n"], ids=["first", "second"])
def test_chunk_that_is_none(proxy: Rig, chunk: bytes, before: bytes) -> None:
    refused(proxy, OK + b"transfer-encoding: chunked\r\n\r\n" + before + chunk + b"0\r\n\r\n")
    refused(proxy, OK + b"transfer-encoding: chunked\r\n\r\n", before + chunk + b"0\r\n\r\n")


BAD_ENDS = [
    b"",
    b"0",
    b"0\r",
    b"0\r\n",
    b"0\r\n\r",
    b"0\n\n",
    b"-0\r\n\r\n",
    b"0\r\nx\r\n\r\n",
    b"0\r\n x: 1\r\n\r\n",
    b"0\r\nx: \x00\r\n\r\n",
    b"0\r\nx: 1\n\r\n",
]


@pytest.mark.parametrize("end", named(BAD_ENDS))
def test_end_that_does_not_come(proxy: Rig, end: bytes) -> None:
    refused(proxy, OK + b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n" + end)


@pytest.mark.parametrize("sent", range(1, 100, 7))
def test_answer_cut_anywhere_is_never_taken_for_the_whole(proxy: Rig, sent: int) -> None:
    whole = OK + b"content-type: application/json\r\ncontent-length: 30\r\n\r\n" + b"x" * 30
    refused(proxy, whole[:sent])


# Splitting: bytes behind an answer are nobody's

FIRSTS = [
    *(
        OK + b"content-length: 2\r\n\r\nok",
        OK + b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        OK + b"content-length: 0\r\n\r\n",
    ),
    *(
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\ncontent-length: 8\r\n\r\n",
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno",
    ),
]
SURPLUS = [
    SECOND,
    SECOND + SECOND,
    b"x",
    b"\r\n",
    b"\r\n" + SECOND,
    b"\x00",
    b"HTTP/1.1 100 Continue\r\n\r\n" + SECOND,
    b"HTTP/1.1 200",
    GET,
]


@pytest.mark.parametrize("surplus", named(SURPLUS))
@pytest.mark.parametrize("first", named(FIRSTS))
@pytest.mark.parametrize("together", [True, False], ids=["together", "apart"])
def test_answer_to_no_request_reaches_nobody(proxy: Rig, first: bytes, surplus: bytes, together: bool) -> None:
    if together:
        passes(proxy, first + surplus)
        return
    proxy.scripts = [Script((first,))]
    struck = proxy.strike(GET)
    assert struck.answers().messages[0].first[0] == first[9:12]
    proxy.say(surplus)
    until = time.monotonic() + PATIENCE
    while proxy.open:  # the connection is fit for nobody, as soon as that is seen
        assert time.monotonic() < until
        time.sleep(0.001)
    proxy.next_is_sound()


@pytest.mark.parametrize("first", named(FIRSTS))
@pytest.mark.parametrize("step", [1, 3, 10])
def test_answer_in_pieces_is_the_answer(proxy: Rig, first: bytes, step: int) -> None:
    passes(proxy, *[first[at : at + step] for at in range(0, len(first), step)])


@pytest.mark.parametrize("body", named([b"", b"body", SECOND]))
@pytest.mark.parametrize(
    "framing", [b"content-length: %d\r\n", b"transfer-encoding: chunked\r\n", b""], ids=["length", "chunked", "close"]
)
def test_body_behind_the_answer_to_a_head_is_nobodys(proxy: Rig, body: bytes, framing: bytes) -> None:
    fields = framing % len(body) if b"%d" in framing else framing
    passes(proxy, OK + fields + b"\r\n" + body, method=b"HEAD")


INTERIM = [
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nx-poison: 1\r\ncontent-length: 5\r\n\r\n",
    b"HTTP/1.1 102 Processing\r\ntransfer-encoding: chunked\r\n\r\n",
]


@pytest.mark.parametrize("interim", named(INTERIM))
@pytest.mark.parametrize("times", [1, 2, 30])
def test_interim_answers_frame_nothing(proxy: Rig, interim: bytes, times: int) -> None:
    is_meant_or_refused(proxy, interim * times + OK + b"content-length: 2\r\n\r\nok")


HUGE = {
    "headers": OK + b"x-many: 1\r\n" * 100_000 + b"content-length: 2\r\n\r\nok",
    "short-headers": OK + b"a:\r\n" * 100_000 + b"content-length: 2\r\n\r\nok",
    "value": OK + b"x: " + b"v" * 2_000_000 + b"\r\ncontent-length: 2\r\n\r\nok",
    "reason": b"HTTP/1.1 200 " + b"O" * 2_000_000 + b"\r\ncontent-length: 2\r\n\r\nok",
    "trailers": OK + b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n" + b"x: 1\r\n" * 300_000 + b"\r\n",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\n" * 100_000 + OK + b"content-length: 2\r\n\r\nok",
}


@pytest.mark.parametrize("answer", HUGE.values(), ids=HUGE)
def test_huge_head_of_an_answer_is_bounded(proxy: Rig, answer: bytes) -> None:
    is_meant_or_refused(proxy, answer)
