"""Messages that fuzzers begin with, and bytes that they put into them."""

from __future__ import annotations

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
