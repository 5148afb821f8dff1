"""Request lines, targets, header lines and sizes, over raw sockets: what is malformed reaches nobody, what is odd
reaches one side and means the same there."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from strict import PATIENCE, Rig, rig

pytestmark = pytest.mark.sampled

INNER = b"GET /v1/smuggled HTTP/1.1\r\nhost: s\r\n\r\n"
GOOD = b"POST /v1/good HTTP/1.1\r\nhost: s\r\ncontent-length: 4\r\n\r\ngood"
REST = b"host: s\r\ncontent-length: 2\r\n\r\n{}"
CONTROLS = [byte for byte in (*range(0x20), 0x7F) if byte not in b"\t\r\n"]
REFUSALS = (b"400", b"405", b"431", b"501", b"505")


@pytest.fixture(scope="module")
def proxy() -> Iterator[Rig]:
    with rig() as running:
        yield running


def refused(proxy: Rig, request: bytes) -> None:
    """The request reaches nobody, alone or behind a good one, nor does what follows it."""
    for sent, before in ((request + INNER, 0), (GOOD + request + INNER, 1)):
        struck = proxy.strike(sent)
        assert struck.sent.state == "bad", "the strict reader lets it pass"
        assert proxy.judged(struck)
        assert len(struck.arrived) == before
        assert struck.answers().messages[-1].first[0] in REFUSALS, struck.received
    proxy.next_is_sound()


def is_one_or_none(proxy: Rig, request: bytes) -> None:
    """The request is refused, or it reaches one side, as it is, and the next one is the next."""
    for sent in (request + INNER, GOOD + request + INNER):
        struck = proxy.strike(sent)
        proxy.judged(struck)
    proxy.next_is_sound()


def named(cases: list[bytes]) -> list[pytest.param]:  # type: ignore[valid-type]
    return [pytest.param(case, id=f"{number:02}-{case[:40]!r}") for number, case in enumerate(cases)]


# Request lines

BAD_LINES = [
    *(
        b"POST",
        b"POST /v1/x",
        b"POST /v1/x ",
        b"POST /v1/x HTTP",
        b"POST /v1/x HTTP/",
        b"POST /v1/x HTTP/1",
        b"POST /v1/x HTTP/1.",
    ),
    *(
        b"POST /v1/x HTTP/1.1 ",
        b"POST /v1/x HTTP/1.1\t",
        b"POST /v1/x HTTP/1.1 x",
        b"POST /v1/x HTTP/1.10",
        b"POST /v1/x HTTP/01.1",
    ),
    *(
        b"POST /v1/x HTTP/1,1",
        b"POST /v1/x HTTP/1.1.1",
        b"POST /v1/x HTTP/-1.1",
        b"POST /v1/x http/1.1",
        b"POST /v1/x HTTPS/1.1",
    ),
    *(
        b"POST /v1/x HTTP /1.1",
        b"POST /v1/x HTTP/ 1.1",
        b"POST /v1/x HTTP/1 .1",
        b"POST /v1/x XTTP/1.1",
        b"POST /v1/x HTTP\\1.1",
    ),
    *(
        b"POST /v1/x HTTP/0.9",
        b"POST /v1/x HTTP/1.2",
        b"POST /v1/x HTTP/1.9",
        b"POST /v1/x HTTP/2",
        b"POST /v1/x HTTP/2.0",
        b"POST /v1/x HTTP/3.0",
    ),
    *(
        b"POST /v1/x y HTTP/1.1",
        b"POST\t/v1/x\tHTTP/1.1",
        b"POST\t/v1/x HTTP/1.1",
        b"POST /v1/x\tHTTP/1.1",
        b"POST/v1/x HTTP/1.1",
        b"POST /v1/xHTTP/1.1",
    ),
    *(b"PO ST /v1/x HTTP/1.1",),
    *(
        b"P\x00ST /v1/x HTTP/1.1",
        b"POST\x00 /v1/x HTTP/1.1",
        b"\xefPOST /v1/x HTTP/1.1",
        b"\x00POST /v1/x HTTP/1.1",
        b"(POST) /v1/x HTTP/1.1",
    ),
    *(
        b" POST /v1/x HTTP/1.1",
        b"\tPOST /v1/x HTTP/1.1",
        b"/v1/x HTTP/1.1",
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 POST /v1/x",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
    ),
    *(
        b"PRI * HTTP/2.0",
        b"CONNECT production:443 HTTP/1.1",
        b"CONNECT /v1/x HTTP/1.1",
        b"CONNECT 127.0.0.1:80 HTTP/1.1",
        b"POST  HTTP/1.1",
    ),
]


@pytest.mark.parametrize("line", named(BAD_LINES))
def test_request_line_that_is_none(proxy: Rig, line: bytes) -> None:
    refused(proxy, line + b"\r\n" + REST)


@pytest.mark.parametrize(
    "end", named([b"\n", b"\r", b"\r\r\n", b"\n\r", b"\r\n\n", b"\n\n", b"\x0b\r\n", b"\x85\r\n", b"\x00\r\n"])
)
def test_request_line_that_ends_otherwise(proxy: Rig, end: bytes) -> None:
    refused(proxy, b"POST /v1/x HTTP/1.1" + end + REST)


@pytest.mark.parametrize("byte", [*CONTROLS, *b"\t\r\n"], ids=hex)
@pytest.mark.parametrize(
    "line", [b"PO%cT /v1/x HTTP/1.1", b"POST /v1/%c HTTP/1.1", b"POST /v1/x?a=%c HTTP/1.1", b"POST /v1/x HTTP/1.%c1"]
)
def test_control_character_in_a_request_line(proxy: Rig, line: bytes, byte: int) -> None:
    refused(proxy, line % byte + b"\r\n" + REST)


@pytest.mark.parametrize(
    "method", [b"post", b"Post", b"POSTX", b"XPOST", b"FOO", b"P", b"!", b"~POST", b"POST'"], ids=bytes.decode
)
def test_method_that_nobody_knows(proxy: Rig, method: bytes) -> None:
    struck = proxy.strike(method + b" /v1/x HTTP/1.1\r\n" + REST + INNER)
    assert struck.answers().messages[0].first[0] in REFUSALS
    assert struck.arrived == []
    proxy.next_is_sound()


def test_preface_of_http_2_and_what_follows_it(proxy: Rig) -> None:
    refused(proxy, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")


@pytest.mark.parametrize(
    "line", named([b"GET /v1/x\r\n", b"GET /v1/x\n", b"GET /v1/x", b"GET /\r\n\r\n", b"/v1/x\r\n"])
)
def test_http_0_9(proxy: Rig, line: bytes) -> None:
    struck = proxy.strike(line, patience=0.1)
    assert struck.arrived == []
    proxy.next_is_sound()


# Targets

TARGETS = [
    *(
        b"/v1",
        b"/v1/",
        b"/v1?x",
        b"/v1/?",
        b"/v1/x?",
        b"/v1/x??",
        b"/v1/x?a=b&c",
        b"/v1//x",
        b"/v1/./x",
        b"/v1/../feedback",
        b"/v1/../../feedback",
    ),
    *(
        b"/v1/%2e%2e/feedback",
        b"/v1%2fx",
        b"/v1%2Fx",
        b"/%76%31/x",
        b"/V1/x",
        b"/v1;a=b/x",
        b"/v1;/x",
        b"/v1.",
        b"/v1x",
        b"/v1\\x",
        b"/v1/x\\..\\y",
    ),
    *(
        b"/v1/x#f",
        b"/v1/#/../feedback",
        b"/feedback?/v1/",
        b"/feedback#/v1/",
        b"//v1/x",
        b"///v1/x",
        b"//v1",
        b"//feedback",
        b"/./v1/x",
        b"/x/../v1/x",
    ),
    *(
        b"/v1/%00",
        b"/v1/%0d%0aHost:%20x",
        b"/v1/%",
        b"/v1/%zz",
        b"/v1/<>",
        b"/v1/{}",
        b"/v1/|",
        b'/v1/"',
        b"/v1/'",
        b"/v1/`",
        b"/v1/^",
        b"/v1/[x]",
    ),
    *(
        b"http://s/v1/x",
        b"http://s/feedback",
        b"http://s",
        b"http://s/",
        b"http://s?/v1/x",
        b"https://s/v1/x",
        b"HTTP://S/v1/x",
        b"http://other:1/v1/x",
    ),
    *(
        b"http://a@s/v1/x",
        b"http://a:b@s/v1/x",
        b"http://s:99999/v1/x",
        b"http://s:x/v1/x",
        b"http://[::1]/v1/x",
        b"http://[::1/v1/x",
        b"http:///v1/x",
    ),
    *(
        b"http://s#/v1/x",
        b"http://s/v1/x#f",
        b"http:/v1/x",
        b"http:v1/x",
        b"ftp://s/v1/x",
        b"file:///v1/x",
        b"s:80",
        b"s/v1/x",
        b"v1/x",
        b"*",
        b"**",
        b"?x",
    ),
    *(
        b"\\v1\\x",
        b"/v1/" + b"a" * 8000,
        b"/v1/x?" + b"a=b&" * 4000,
        b"/v1/\xc3\xa4",
        b"/v1/\xff",
        b"/v1/x?\xff",
        b"/\xe2\x80\xa8v1/x",
    ),
]


@pytest.mark.parametrize("target", named(TARGETS))
@pytest.mark.parametrize("method", [b"GET", b"POST", b"OPTIONS"], ids=bytes.decode)
def test_target_reaches_one_side_as_it_is_or_nobody(proxy: Rig, method: bytes, target: bytes) -> None:
    is_one_or_none(proxy, method + b" " + target + b" HTTP/1.1\r\n" + REST)


def test_targets_that_are_common_come_through(proxy: Rig) -> None:
    """So that the test above is not passed by refusing everything."""
    for target in (
        b"/v1",
        b"/v1?x",
        b"/v1/../feedback",
        b"/v1%2fx",
        b"/feedback?/v1/",
        b"http://s/v1/x",
        b"/v1/%0d%0aHost:%20x",
        b"//v1/x",
    ):
        struck = proxy.strike(b"GET " + target + b" HTTP/1.1\r\nhost: s\r\n\r\n")
        assert not proxy.judged(struck)
        assert len(struck.arrived) == 1


# Header lines

BAD_FIELDS = [
    *(
        b"x",
        b"x ",
        b": 1",
        b" : 1",
        b":",
        b"x : 1",
        b"x\t: 1",
        b"x\x0b: 1",
        b" x: 1",
        b"\tx: 1",
        b"x y: 1",
        b"x\xa0: 1",
        b"\xffx: 1",
        b"\xef\xbb\xbfx: 1",
    ),
    *(
        b"(x): 1",
        b"x(: 1",
        b"x,y: 1",
        b"x/y: 1",
        b"x;y: 1",
        b"x=y: 1",
        b"x?: 1",
        b"x@y: 1",
        b"x[0]: 1",
        b"{x}: 1",
        b'"x": 1',
        b"x\\: 1",
        b"<x>: 1",
    ),
    *(
        b"x: 1\r\n 2",
        b"x: 1\r\n\t2",
        b"x:\r\n 1",
        b"x: 1\r\n ",
        b"x: 1\n 2",
        b"x: 1\n\t2",
        b"x: 1\ny: 2",
        b"x: 1\ry: 2",
        b"x: 1\r y: 2",
        b"x: 1\r\r\ny: 2",
    ),
    *(
        b"x: 1\n\ry: 2",
        b"x: 1\x00y: 2",
        b"x: 1\x0by: 2",
        b"x: 1\x0cy: 2",
        b"x: \r",
        b"x: \n",
        b"x: 1\r",
        b"x\r: 1",
        b"x\n: 1",
        b"x: 1\n\nGET / HTTP/1.1",
    ),
    *(b"GET /v1/x HTTP/1.1", b"HTTP/1.1 200 OK", b"\x00", b"\x00: 1", b"x: 1\r\n\x00"),
]


@pytest.mark.parametrize("line", named(BAD_FIELDS))
@pytest.mark.parametrize("at", ["first", "second"])
def test_header_line_that_is_none(proxy: Rig, line: bytes, at: str) -> None:
    start = b"POST /v1/x HTTP/1.1\r\n"
    if at == "first":
        refused(proxy, start + line + b"\r\nhost: s\r\ncontent-length: 2\r\n\r\n{}")
    else:
        refused(proxy, start + b"host: s\r\n" + line + b"\r\ncontent-length: 2\r\n\r\n{}")


@pytest.mark.parametrize("byte", CONTROLS, ids=hex)
@pytest.mark.parametrize(
    "line",
    [b"x%ca: 1", b"%cx: 1", b"x%c: 1", b"x:%c1", b"x: a%cb", b"x: 1%c", b"host: a%cb", b"authorization: Bearer%ca"],
)
def test_control_character_in_a_header_line(proxy: Rig, line: bytes, byte: int) -> None:
    refused(proxy, b"POST /v1/x HTTP/1.1\r\n" + line % byte + b"\r\n" + REST)


@pytest.mark.parametrize(
    "injected",
    [
        b"\r\nx-injected: 1",
        b"\nx-injected: 1",
        b"\rx-injected: 1",
        b"\r\n\r\nGET /v1/injected HTTP/1.1\r\nhost: s\r\n\r\n",
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    "coded",
    [
        lambda text: text,
        lambda text: b"".join(b"%%%02x" % byte for byte in text),
        lambda text: text.replace(b"\r", b"\\r").replace(b"\n", b"\\n"),
    ],
    ids=["plain", "percent", "backslash"],
)
def test_line_breaks_in_a_value_make_no_header_of_it(proxy: Rig, injected: bytes, coded: object) -> None:
    text = coded(injected)  # type: ignore[operator]
    struck = proxy.strike(b"POST /v1/x HTTP/1.1\r\nhost: s\r\nx-a: 1" + text + b"\r\ncontent-length: 2\r\n\r\n{}")
    refusal = proxy.judged(struck)
    if text != injected:
        assert not refusal
        assert struck.arrived[0].message.values(b"x-a") == [b"1" + text]
    proxy.next_is_sound()


HOSTS = [
    b"",
    b"a",
    b"a:b:c",
    b"a b",
    b"a,b",
    b"a/b",
    b"a@b",
    b"[::1]",
    b"\xff",
    b"a\r\nhost: b",
    b"127.0.0.1",
    b"a" * 5000,
    b"a#b",
    b"a?b",
    b"%00",
]


@pytest.mark.parametrize("host", named(HOSTS))
@pytest.mark.parametrize("target", [b"/v1/x", b"/feedback", b"http://other/v1/x"], ids=bytes.decode)
def test_host_of_the_agent_is_never_productions(proxy: Rig, host: bytes, target: bytes) -> None:
    is_one_or_none(proxy, b"POST " + target + b" HTTP/1.1\r\nhost: " + host + b"\r\ncontent-length: 2\r\n\r\n{}")


EXPECTATIONS = [b"100-continue", b"100-Continue", b"", b"x", b"100-continue, x", b"200-ok", b"100-continue=x", b"100"]


@pytest.mark.parametrize("value", named(EXPECTATIONS))
@pytest.mark.parametrize(
    "body",
    [b"content-length: 2\r\n\r\n{}", b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", b"\r\n"],
    ids=["length", "chunked", "none"],
)
def test_expectation_with_the_body_at_once(proxy: Rig, value: bytes, body: bytes) -> None:
    is_one_or_none(proxy, b"POST /v1/x HTTP/1.1\r\nhost: s\r\nexpect: " + value + b"\r\n" + body)


UPGRADES = [
    b"h2c",
    b"H2C",
    b"websocket",
    b"WebSocket",
    b"h2c, websocket",
    b"websocket, h2c",
    b"TLS/1.0",
    b"HTTP/2.0",
    b"",
    b"x",
    b"h2c\r\nupgrade: websocket",
]


@pytest.mark.parametrize("value", named(UPGRADES))
@pytest.mark.parametrize(
    "connection", [b"upgrade", b"Upgrade, HTTP2-Settings", b"keep-alive", b"close, upgrade"], ids=bytes.decode
)
@pytest.mark.parametrize(
    "body",
    [b"content-length: 2\r\n\r\n{}", b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", b"\r\n"],
    ids=["length", "chunked", "none"],
)
def test_upgrade_tunnels_nothing(proxy: Rig, value: bytes, connection: bytes, body: bytes) -> None:
    fields = (
        b"upgrade: " + value + b"\r\nconnection: " + connection + b"\r\nhttp2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
    )
    is_one_or_none(proxy, b"POST /v1/x HTTP/1.1\r\nhost: s\r\n" + fields + body)


@pytest.mark.parametrize("version", [b"", b" HTTP/0.9", b" HTTP/2.0"], ids=["0.9-bare", "0.9", "2.0"])
@pytest.mark.parametrize("target", [b"/v1/x", b"/feedback"], ids=bytes.decode)
def test_upgrade_does_not_let_another_version_in(proxy: Rig, target: bytes, version: bytes) -> None:
    refused(proxy, b"GET " + target + version + b"\r\nhost: s\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")


def test_upgrade_of_http_1_0_is_ignored(proxy: Rig) -> None:
    struck = proxy.strike(b"GET /v1/x HTTP/1.0\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
    assert proxy.judged(struck) or b"chunked" not in struck.received


@pytest.mark.parametrize(
    "value",
    named(
        [
            b"content-length",
            b"transfer-encoding",
            b"host",
            b"x-a",
            b"close, x-a",
            b"content-length, transfer-encoding",
            b",,",
            b"connection",
            b"authorization",
        ]
    ),
)
@pytest.mark.parametrize(
    "body",
    [b"content-length: 2\r\n\r\n{}", b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"],
    ids=["length", "chunked"],
)
def test_connection_names_away_no_framing(proxy: Rig, value: bytes, body: bytes) -> None:
    is_one_or_none(proxy, b"POST /v1/x HTTP/1.1\r\nhost: s\r\nx-a: 1\r\nconnection: " + value + b"\r\n" + body)


# Sizes

HUGE = {
    "target": b"GET /v1/" + b"x" * 2_000_000 + b" HTTP/1.1\r\nhost: s\r\n\r\n",
    "method": b"G" * 2_000_000 + b" /v1/x HTTP/1.1\r\nhost: s\r\n\r\n",
    "name": b"GET /v1/x HTTP/1.1\r\n" + b"x" * 2_000_000 + b": 1\r\nhost: s\r\n\r\n",
    "value": b"GET /v1/x HTTP/1.1\r\nx: " + b"v" * 2_000_000 + b"\r\nhost: s\r\n\r\n",
    "headers": b"GET /v1/x HTTP/1.1\r\nhost: s\r\n" + b"x-many: 1\r\n" * 100_000 + b"\r\n",
    "short-headers": b"GET /v1/x HTTP/1.1\r\nhost: s\r\n" + b"a:\r\n" * 100_000 + b"\r\n",
    "different-headers": b"GET /v1/x HTTP/1.1\r\n"
    + b"".join(b"x-%d: 1\r\n" % number for number in range(100_000))
    + b"\r\n",
    "lengths": b"POST /v1/x HTTP/1.1\r\n" + b"content-length: 2\r\n" * 100_000 + b"\r\n{}",
    "codings": b"POST /v1/x HTTP/1.1\r\n" + b"transfer-encoding: chunked\r\n" * 100_000 + b"\r\n0\r\n\r\n",
    "blank-header-name": b"GET /v1/x HTTP/1.1\r\n" + b" " * 2_000_000 + b"\r\n\r\n",
    "trailers": b"POST /v1/x HTTP/1.1\r\nhost: s\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
    + b"x: 1\r\n" * 100_000
    + b"\r\n",
    "extension": b"POST /v1/x HTTP/1.1\r\nhost: s\r\ntransfer-encoding: chunked\r\n\r\n2;"
    + b"x" * 2_000_000
    + b"\r\n{}\r\n0\r\n\r\n",
    "zeros": b"POST /v1/x HTTP/1.1\r\nhost: s\r\ntransfer-encoding: chunked\r\n\r\n"
    + b"0" * 2_000_000
    + b"2\r\n{}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("request_", HUGE.values(), ids=HUGE)
def test_huge_head_is_refused_at_once(proxy: Rig, request_: bytes) -> None:
    """The refusal is in docs/limits.md; it may be lost behind a reset, as the rest is still on its way."""
    began = time.monotonic()
    struck = proxy.strike(request_, patience=PATIENCE)
    assert struck.closed
    assert struck.arrived == []
    assert not struck.received or struck.received.split(b" ")[1] in (b"400", b"413", b"414", b"431")
    assert time.monotonic() - began < PATIENCE
    proxy.next_is_sound()


def test_million_blank_lines_hold_nobody(proxy: Rig) -> None:
    proxy.strike(b"\r\n" * 1_000_000)
    proxy.next_is_sound()
