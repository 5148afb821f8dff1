"""Coverage-guided fuzzing of the two readers of HTTP, with atheris: `make test-fuzz`.

    python tests/fuzz/guided.py requests|answers [options of libFuzzer]

For bytes that come as a whole and the same in two pieces, the reader must come to the same, and to what the strict
reader of the raw suites makes of them.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import atheris

sys.path.append(str(Path(__file__).parents[1] / "proxy"))

with atheris.instrument_imports(include=["slipstream.proxy.reader", "slipstream.http.connection"]):
    from slipstream.http.connection import Connection
    from slipstream.proxy.reader import RequestReader

from reading import read_answers, read_requests
from seeds import ANSWERS, REQUESTS, TOKENS

from slipstream.http.errors import UpstreamError
from slipstream.proxy.limits import AgentLimits
from slipstream.settings.sidecar import Limits

GATEWAY: Any = SimpleNamespace(
    limits=AgentLimits.share(Limits()), read_into=memoryview(bytearray(2**16)), is_productions=lambda _: True
)


class Agent(RequestReader):
    """An agent's connection that answers nothing."""

    def _go_on(self) -> None:
        pass

    def _head_begins(self) -> None:
        pass

    def _abandon(self) -> bool:
        raise AssertionError("no request was taken out of the row")

    def read(self, pieces: Sequence[bytes]) -> list[tuple[bytes, bytes, bytes]]:
        """The whole requests up to one that is refused or ends the connection."""
        for piece in pieces:
            GATEWAY.read_into[: len(piece)] = piece
            self.buffer_updated(len(piece))
        whole = []
        for request in self._requests:
            codings = [value.lower() for name, value in request.headers if name.lower() == b"transfer-encoding"]
            if request.refusal is not None or not request.complete:
                break
            if codings and (codings != [b"chunked"] or not request.http11):
                break  # `forward.py` refuses it
            whole.append((request.method, request.target, b"".join(request.pieces)))
            if not request.keep_alive:
                break
        return whole


class Answered:
    """A receiver, and what it was told."""

    def __init__(self) -> None:
        self.body = b""
        self.state = "open"
        self.status = 0

    def answer(self, starts: bool, pieces: list[bytes], ends: bool) -> None:
        assert self.state == "open"
        assert starts == (not self.status) or not starts
        self.status = self.status or CURRENT[0].status
        self.body += b"".join(pieces)
        self.state = "whole" if ends else "open"

    def failed(self, error: UpstreamError) -> None:
        assert self.state == "open"
        self.state = error.cause

    def may_send(self, may: bool) -> None:
        pass


CURRENT: list[Connection] = []


def answered(pieces: Sequence[bytes], *, bodiless: bool) -> tuple[str, int, bytes]:
    transport: Any = SimpleNamespace(
        is_closing=lambda: False,
        abort=lambda: None,
        pause_reading=lambda: None,
        resume_reading=lambda: None,
        get_extra_info=lambda _: None,
    )
    receiver = Answered()
    connection = Connection(60.0, lambda _: None, lambda _: None)
    CURRENT[:] = [connection]
    connection.connection_made(transport)
    connection.begin(receiver, bodiless=bodiless)
    for piece in pieces:
        connection.data_received(piece)
    connection.eof_received()
    connection.connection_lost(None)
    assert receiver.state != "open"
    return receiver.state, receiver.status, receiver.body


def one_request_more(data: bytes) -> None:
    at, data = _split(data)
    whole, split = Agent(GATEWAY).read([data]), Agent(GATEWAY).read([data[:at], data[at:]])
    assert whole == split, (whole, split)
    strict = [(*message.first, message.body) for message in read_requests(data).messages]
    assert whole == strict[: len(whole)], (whole, strict)


def one_answer_more(data: bytes) -> None:
    at, data = _split(data)
    bodiless = at % 8 == 0
    whole = answered([data], bodiless=bodiless)
    split = answered([data[:at], data[at:]], bodiless=bodiless)
    if whole[0] == "whole":
        assert whole == split, (whole, split)
        [message] = read_answers(data, [b"HEAD" if bodiless else b"POST"], ended=True).messages[:1]
        assert whole[1:] == (int(message.first[0]), b"" if bodiless else message.body), (whole, message)


def _split(data: bytes) -> tuple[int, bytes]:
    """The first byte says where the rest is cut in two."""
    rest = data[1:4096]
    return (data[0] * len(rest)) // 256 if data else 0, rest


def _escaped(token: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in token)


TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "requests": (one_request_more, REQUESTS),
    "answers": (one_answer_more, ANSWERS),
}


async def main() -> None:
    """Fuzz within a loop, which connections take their timers from."""
    name, *options = sys.argv[1:]
    target, seeds = TARGETS[name]
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(seeds):
            (Path(folder) / f"{number}").write_bytes(b"\x80" + seed)
        words = Path(folder) / "words"
        words.write_text("".join(f'"{_escaped(token)}"\n' for token in TOKENS))
        atheris.Setup([sys.argv[0], f"-dict={words}", "-max_len=4096", *options, folder], target)
        atheris.Fuzz()


if __name__ == "__main__":
    asyncio.run(main())
