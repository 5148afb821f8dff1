"""Request smuggling, over raw sockets: what says twice, vaguely or wrongly where a request ends reaches nobody.

Each case goes to production and to the control API, in one piece and in three, alone and behind a good request.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from strict import Rig, rig

pytestmark = pytest.mark.sampled

LENGTH = b"content-length: 2\r\n"
CODING = b"transfer-encoding: chunked\r\n"
INNER = b"GET /v1/smuggled HTTP/1.1\r\nhost: s\r\n\r\n"
CONTROLS = [byte for byte in (*range(0x20), 0x7F) if byte not in b"\t\r\n"]
GOOD = b"POST /v1/good HTTP/1.1\r\nhost: s\r\ncontent-length: 4\r\n\r\ngood"


@pytest.fixture(scope="module")
def proxy() -> Iterator[Rig]:
    with rig() as running:
        yield running


def ways(fields: bytes, rest: bytes) -> Iterator[tuple[bytes, ...]]:
    """The request with these fields, and what follows the last of them, in the pieces in which it is sent."""
    start = b"POST /v1/chat/completions HTTP/1.1\r\nhost: s\r\n"
    yield (start + fields + rest,)
    yield start + fields, rest
    yield (GOOD + start + fields + rest,)
    yield (start.replace(b"/v1/chat/completions", b"/feedback") + fields + rest,)


def refused(proxy: Rig, fields: bytes, rest: bytes) -> None:
    """The request reaches nobody, nor does what follows it."""
    for pieces in ways(fields, rest):
        struck = proxy.strike(*pieces)
        assert struck.sent.state == "bad", "the strict reader lets it pass"
        assert proxy.judged(struck)
        assert len(struck.arrived) == pieces[0].startswith(GOOD)
        assert struck.answers().messages[-1].first[0] in (b"400", b"501"), struck.received
    proxy.next_is_sound()


def passes(proxy: Rig, fields: bytes, rest: bytes, body: bytes) -> None:
    """The request comes through as one, with this body, and so does the next one on its connection."""
    for pieces in ways(fields, rest + INNER):
        struck = proxy.strike(*pieces)
        assert not proxy.judged(struck), struck.received
        at = pieces[0].startswith(GOOD)
        assert struck.arrived[at].message.body == body
        assert struck.arrived[at + 1].message.first == (b"GET", b"/v1/smuggled"), "which here is a request of its own"
        assert len(struck.arrived) == at + 2
    proxy.next_is_sound()


def is_one_or_none(proxy: Rig, fields: bytes, rest: bytes) -> None:
    """Whatever the standard lets a recipient do: the request is refused, or it comes through as one."""
    for pieces in ways(fields, rest):
        struck = proxy.strike(*pieces)
        assert proxy.judged(struck) or struck.sent.state != "bad"
    proxy.next_is_sound()


def named(cases: list[bytes]) -> list[pytest.param]:  # type: ignore[valid-type]
    """Cases with names that say what is in them."""
    return [pytest.param(case, id=f"{number:02}-{case[:40]!r}") for number, case in enumerate(cases)]


# Content-Length

BAD_LENGTHS = [
    *(
        b"",
        b"+2",
        b"-2",
        b"+ 2",
        b"--2",
        b"0x2",
        b"0X2",
        b"2h",
        b"0b10",
        b"0o2",
        b"2.0",
        b"2e0",
        b"2E0",
        b"1_0",
        b"two",
    ),
    *(b"2,", b",2", b"2,2", b"2, 2", b"2 2", b"2\t2", b"2;2", b"2;q=1", b"2/3", b"2-3", b'"2"', b"'2'", b"(2)", b"[2]"),
    *(
        b"2\x002",
        b"\xa02",
        b"2\xa0",
        b"\xef\xbb\xbf2",
        b"\xd9\xa2",
        b"\xef\xbc\x92",
        b"%32",
        b"\\2",
        b"2\\",
        b"$2",
        b"2 bytes",
    ),
    *(
        b"18446744073709551616",
        b"18446744073709551618",
        b"36893488147419103234",
        b"9" * 20,
        b"9" * 400,
        b"0" * 30 + b"9" * 20,
    ),
    *(b"NaN", b"Infinity", b"null", b"true", b"2:", b":2", b"2\r 2", b"2\n 2", b"2\r\n 2", b"\r\n 2"),
]


@pytest.mark.parametrize("value", named(BAD_LENGTHS))
def test_length_that_is_no_number(proxy: Rig, value: bytes) -> None:
    refused(proxy, b"content-length: " + value + b"\r\n", b"\r\n{}" + INNER)


@pytest.mark.parametrize("byte", CONTROLS, ids=hex)
@pytest.mark.parametrize("at", ["before", "behind"])
def test_length_beside_a_control_character(proxy: Rig, byte: int, at: str) -> None:
    value = b"%c2" % byte if at == "before" else b"2%c" % byte
    refused(proxy, b"content-length:" + value + b"\r\n", b"\r\n{}" + INNER)


@pytest.mark.parametrize(
    "line", named([b"content-length:2", b"Content-Length: 2", b"CONTENT-LENGTH:\t 2 \t", b"content-length: 02"])
)
def test_length_in_every_legal_way(proxy: Rig, line: bytes) -> None:
    passes(proxy, line + b"\r\n", b"\r\n{}", b"{}")


LENGTH_PAIRS = [
    *itertools.permutations((b"2", b"3", b"0", b"02", b"+2", b""), 2),
    *((b"2", b"2, 2"), (b"2", b"%d" % len(INNER)), (b"0", b"%d" % (2 + len(INNER))), (b"2", b"x")),
]


@pytest.mark.parametrize("pair", LENGTH_PAIRS, ids=lambda pair: f"{pair[0].decode()}-{pair[1].decode()}")
@pytest.mark.parametrize("between", [b"", b"x-between: 1\r\n"], ids=["beside", "apart"])
def test_two_lengths(proxy: Rig, pair: tuple[bytes, bytes], between: bytes) -> None:
    fields = b"content-length: " + pair[0] + b"\r\n" + between + b"Content-length: " + pair[1] + b"\r\n"
    refused(proxy, fields, b"\r\n{}" + INNER)


@pytest.mark.parametrize("times", [2, 3, 50])
def test_length_said_again_is_refused_or_means_the_same(proxy: Rig, times: int) -> None:
    is_one_or_none(proxy, LENGTH * times, b"\r\n{}" + INNER)


# Transfer-Encoding

BAD_CODINGS = [
    *(
        b"",
        b",",
        b"identity",
        b"gzip",
        b"x",
        b"xchunked",
        b"chunkedx",
        b"chunk",
        b"chunkeds",
        b"chunked2",
        b"cow",
        b"true",
    ),
    *(
        b"chunked, identity",
        b"chunked, gzip",
        b"chunked,chunked",
        b"chunked, chunked",
        b"gzip, identity",
        b"cow, chunked, x",
    ),
    *(b"chunked;", b"chunked;q=1", b"chunked; q=0", b"chunked x", b"x chunked", b"chun ked", b"chunked/1", b"chunked:"),
    *(
        b'"chunked"',
        b"'chunked'",
        b"(chunked)",
        b"[chunked]",
        b"{chunked}",
        b"<chunked>",
        b"\\chunked",
        b"c\\hunked",
        b"%63hunked",
    ),
    *(
        b"chun\xe2\x84\xaaed",
        b"\xa0chunked",
        b"chunked\xa0",
        b"\xef\xbb\xbfchunked",
        b"\xffchunked",
        b"chunked\xff",
        b"chunked=1",
    ),
    *(
        b"chunked\r\n x",
        b"chunked\r\n\tx",
        b"\r\n chunked",
        b"\n chunked",
        b"\r chunked",
        b"x\r\n chunked",
        b"chunked\r\n ",
        b"\n\tchunked",
    ),
]


@pytest.mark.parametrize("value", named(BAD_CODINGS))
def test_coding_that_is_not_chunked(proxy: Rig, value: bytes) -> None:
    refused(proxy, b"transfer-encoding: " + value + b"\r\n", b"\r\n2\r\n{}\r\n0\r\n\r\n" + INNER)


@pytest.mark.parametrize("value", named(BAD_CODINGS))
def test_coding_that_is_not_chunked_beside_a_length(proxy: Rig, value: bytes) -> None:
    for fields in (
        b"transfer-encoding: " + value + b"\r\n" + LENGTH,
        LENGTH + b"transfer-encoding: " + value + b"\r\n",
    ):
        refused(proxy, fields, b"\r\n{}" + INNER)


@pytest.mark.parametrize("byte", CONTROLS, ids=hex)
@pytest.mark.parametrize("at", ["before", "behind", "within"])
def test_coding_beside_a_control_character(proxy: Rig, byte: int, at: str) -> None:
    value = {"before": b"%cchunked", "behind": b"chunked%c", "within": b"chun%cked"}[at] % byte
    refused(proxy, b"transfer-encoding:" + value + b"\r\n", b"\r\n2\r\n{}\r\n0\r\n\r\n" + INNER)


@pytest.mark.parametrize(
    "line",
    named(
        [
            b"transfer-encoding:chunked",
            b"Transfer-Encoding: Chunked",
            b"TRANSFER-ENCODING:\t CHUNKED",
            b"Transfer-encoding: chunked ",
        ]
    ),
)
def test_coding_in_every_legal_way(proxy: Rig, line: bytes) -> None:
    passes(proxy, line + b"\r\n", b"\r\n2\r\n{}\r\n0\r\n\r\n", b"{}")


CODINGS = (b"chunked", b"identity", b"x", b"", b"gzip", b"chunked, x", b"xchunked")


@pytest.mark.parametrize("pair", list(itertools.product(CODINGS, CODINGS)), ids=lambda pair: f"{pair[0]!r}-{pair[1]!r}")
def test_two_codings(proxy: Rig, pair: tuple[bytes, bytes]) -> None:
    fields = b"transfer-encoding: " + pair[0] + b"\r\nTransfer-Encoding: " + pair[1] + b"\r\n"
    refused(proxy, fields, b"\r\n2\r\n{}\r\n0\r\n\r\n" + INNER)


LENGTHS = (b"0", b"2", b"5", b"12", b"%d" % (12 + len(INNER)), b"999999", b"+2", b"")


@pytest.mark.parametrize("length", LENGTHS, ids=bytes.decode)
@pytest.mark.parametrize("coding", [b"chunked", b"Chunked", b"gzip, chunked", b"chunked, x", b"x"], ids=bytes.decode)
@pytest.mark.parametrize("first", ["length", "coding"])
def test_length_and_coding(proxy: Rig, length: bytes, coding: bytes, first: str) -> None:
    fields = [b"content-length: " + length + b"\r\n", b"transfer-encoding: " + coding + b"\r\n"]
    if first == "coding":
        fields.reverse()
    refused(proxy, b"x-between: 1\r\n".join(fields), b"\r\n2\r\n{}\r\n0\r\n\r\n" + INNER)


@pytest.mark.parametrize("version", [b"1.0", b"1.0\r\nconnection: keep-alive"])
def test_coding_in_http_1_0_which_has_none(proxy: Rig, version: bytes) -> None:
    struck = proxy.strike(b"POST /v1/x HTTP/" + version + b"\r\n" + CODING + b"\r\n2\r\n{}\r\n0\r\n\r\n" + INNER)
    assert proxy.judged(struck)
    assert not struck.arrived
    proxy.next_is_sound()


ALIKE = [
    b"transfer_encoding",
    b"x-transfer-encoding",
    b"transfer-encodings",
    b"transferencoding",
    b"content_length",
    b"contentlength",
    b"te",
]


@pytest.mark.parametrize("name", ALIKE, ids=bytes.decode)
def test_name_that_is_only_alike_frames_nothing(proxy: Rig, name: bytes) -> None:
    passes(proxy, name + b": chunked\r\n" + LENGTH, b"\r\n0\n", b"0\n")


# Chunks

BAD_SIZES = [
    *(
        b"",
        b" 2",
        b"\t2",
        b"2 ",
        b"2\t",
        b"+2",
        b"-2",
        b"--2",
        b"0x2",
        b"x2",
        b"2h",
        b"g",
        b"2g",
        b"2_0",
        b"2.0",
        b"2,",
        b"2 2",
        b"2\t2",
    ),
    *(
        b"\xd9\xa2",
        b"\xef\xbc\x92",
        b"\xa02",
        b"2\xa0",
        b"2\\",
        b"%32",
        b"'2'",
        b'"2"',
        b"2:a",
        b"2=a",
        b"2 a",
        b"2\r",
        b"2\r\r",
        b"\r2",
    ),
    *(b"10000000000000002", b"100000000000000002", b"F" * 17, b"F" * 1000, b"0" * 20 + b"F" * 17),
    *(b"2;a\n", b"2;\n", b"2;a\r", b'2;a="b\nc"', b'2;a="\r', b"2;a=b\nc"),
]


@pytest.mark.parametrize("size", named(BAD_SIZES))
@pytest.mark.parametrize("before", [b"", b"4\r\ngood\r\n"], ids=["first", "second"])
def test_chunk_size_that_is_none(proxy: Rig, size: bytes, before: bytes) -> None:
    refused(proxy, CODING, b"\r\n" + before + size + b"\r\n{}\r\n0\r\n\r\n" + INNER)


@pytest.mark.parametrize("byte", CONTROLS, ids=hex)
@pytest.mark.parametrize("at", ["size", "name", "value", "quoted"])
def test_control_character_in_a_chunks_line(proxy: Rig, byte: int, at: str) -> None:
    line = {"size": b"2%c", "name": b"2;a%c", "value": b"2;a=b%c", "quoted": b'2;a="b%c"'}[at] % byte
    refused(proxy, CODING, b"\r\n" + line + b"\r\n{}\r\n0\r\n\r\n" + INNER)


BAD_ENDS = [
    b"",
    b"\n",
    b"\r",
    b"\n\r",
    b"\r\r",
    b"\n\n",
    b"XX",
    b"\rX",
    b"X\n",
    b" \r\n",
    b"X\r\n",
    b"\r\r\n",
    b"\n\r\n",
    b"\x00\r\n",
    b"\r\x00\n",
]


@pytest.mark.parametrize("end", named(BAD_ENDS))
def test_chunk_that_does_not_end_where_it_says(proxy: Rig, end: bytes) -> None:
    refused(proxy, CODING, b"\r\n2\r\n{}" + end + b"0\r\n\r\n" + INNER)


BAD_LAST = [
    b"0\n\n",
    b"0\r\n\n",
    b"0\n\r\n",
    b"-0\r\n\r\n",
    b"0x0\r\n\r\n",
    b"0 \r\n\r\n",
    b" 0\r\n\r\n",
    b"0\r\r\n\r\n",
    b"0\r\nX\r\n\r\n",
]
BAD_TRAILERS = [
    *(
        b" x: 1\r\n",
        b"x : 1\r\n",
        b": 1\r\n",
        b"x\r\n",
        b"x: 1\n",
        b"x: 1\r",
        b"x: \x00\r\n",
        b"x: 1\r\n y\r\n",
        b"x: 1\ny: 2\r\n",
    ),
    *(
        b"x\x00: 1\r\n",
        b"x y: 1\r\n",
        b"x: 1\r\r\n",
        b"GET / HTTP/1.1\r\n",
        b"(x): 1\r\n",
        b"x,y: 1\r\n",
        b"\xff: 1\r\n",
    ),
]


@pytest.mark.parametrize("last", named(BAD_LAST + [b"0\r\n" + trailer + b"\r\n" for trailer in BAD_TRAILERS]))
def test_last_chunk_or_trailer_that_is_none(proxy: Rig, last: bytes) -> None:
    refused(proxy, CODING, b"\r\n2\r\n{}\r\n" + last + INNER)


BODIES = [
    *(
        b"2\r\n{}\r\n0\r\n\r\n",
        b"02\r\n{}\r\n0\r\n\r\n",
        b"0000000000002\r\n{}\r\n000\r\n\r\n",
        b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
    ),
    *(
        b"2;a\r\n{}\r\n0\r\n\r\n",
        b"2;a=b\r\n{}\r\n0;c=d\r\n\r\n",
        b'2;a="b;c"\r\n{}\r\n0\r\n\r\n',
        b"2;a=b;c=d\r\n{}\r\n0\r\n\r\n",
    ),
    *(
        b"2\r\n{}\r\n0\r\nx: 1\r\n\r\n",
        b"2\r\n{}\r\n0\r\nhost: other\r\nauthorization: Bearer other\r\nx-slipstream-key: slp_x\r\n\r\n",
    ),
]


@pytest.mark.parametrize("body", named(BODIES))
def test_chunks_in_every_legal_way(proxy: Rig, body: bytes) -> None:
    passes(proxy, CODING, b"\r\n" + body, b"{}")


@pytest.mark.parametrize(
    "trailer", [b"content-length: 50", b"transfer-encoding: x", b"content-length: 2"], ids=bytes.decode
)
def test_trailer_that_would_frame(proxy: Rig, trailer: bytes) -> None:
    is_one_or_none(proxy, CODING, b"\r\n2\r\n{}\r\n0\r\n" + trailer + b"\r\n\r\n" + INNER)


@pytest.mark.parametrize(
    "size", [b"F" * 16, b"FFFFFFFFFFFFFFFE", b"8000000000000000", b"7FFFFFFFFFFFFFFF", b"FFFFFFFF"], ids=bytes.decode
)
def test_chunk_of_any_length_waits_for_its_end(proxy: Rig, size: bytes) -> None:
    for pieces in ways(CODING, b"\r\n" + size + b"\r\n{}\r\n0\r\n\r\n" + INNER):
        struck = proxy.strike(*pieces)
        assert struck.sent.state == "partial"
        proxy.judged(struck)
        assert len(struck.arrived) == pieces[0].startswith(GOOD)
    proxy.next_is_sound()


@pytest.mark.parametrize(
    "within", named([INNER, b"0\r\n\r\n" + INNER, b"\r\n\r\n" + INNER, b"0\r\n\r\n", b"\x00" * 50])
)
def test_request_within_a_body_is_body(proxy: Rig, within: bytes) -> None:
    passes(proxy, b"content-length: %d\r\n" % len(within), b"\r\n" + within, within)
    passes(proxy, CODING, b"\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(within), within), within)
