"""CPU time of each part of capturing a call, alone and warm.

    PYTHONPATH=benchmarks python benchmarks/capture_parts.py [--rounds 15]

A chat of 2 KB, and streams of 100 chunks, without and with the log probabilities of five alternatives. CPU time of one
thread in microseconds, the best of the rounds: other programs on the machine cost caches, and the best round has the
least of that. Transactions of the store are not in it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from bench.request import chat, stream
from bench.stream_stub import event, large_event
from bench.upstreams import answer
from prometheus_client import CollectorRegistry

from slipstream.capture.completion import CapturedCall, read_call
from slipstream.capture.conversations import Conversations
from slipstream.capture.histories import Histories, Items
from slipstream.capture.redacted import ExchangeRedactor, RedactedExchange, pack_exchanges, unpack_exchanges
from slipstream.dialects.chat_stream import assemble
from slipstream.memory.parsing import ParseMemory
from slipstream.metrics import Metrics
from slipstream.proxy.capture_ipc import Receivers, frame
from slipstream.proxy.tap import ExchangeHead, Recording, Room
from slipstream.redaction.redactor import Redactor
from slipstream.settings.sidecar import Settings

_CHUNKS = 100
_EACH = 20
"""Repetitions within a round: one takes too little for the clock."""
_AT_ONCE = 256 * 1024
"""Bytes that a socket gives at once, at most."""
_ENCODED = b"text/event-stream; charset=utf-8"


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    cases = {
        "chat of 2 KB": (chat(), [answer().encode()], b"application/json"),
        "stream of 100 chunks": (stream(_CHUNKS, 10, 1), _stream(event), _ENCODED),
        "the same with log probabilities": (stream(_CHUNKS, 10, 1), _stream(large_event), _ENCODED),
    }
    found = {name: _parts(*case, rounds) for name, case in cases.items()}
    print(f"| part | {' | '.join(found)} |\n|---|{'---:|' * len(found)}")
    for part in next(iter(found.values())):
        print(f"| {part} | {' | '.join(f'{parts[part]:,.1f}' for parts in found.values())} |")


def _stream(made: Callable[[int, int, int], bytes]) -> list[bytes]:
    return [made(number, _CHUNKS, 1) for number in range(_CHUNKS)]


def _parts(asked: bytes, pieces: list[bytes], kind: bytes, rounds: int) -> dict[str, float]:
    lines, _, body = asked.partition(b"\r\n\r\n")
    fields = [(name, value) for name, _, value in (line.partition(b": ") for line in lines.split(b"\r\n")[1:])]

    def copied() -> Recording:
        recording = Recording(ExchangeHead("POST", "/v1/chat/completions", fields, time.time()), 2**23, Room(2**28))
        recording.request.add([body])
        recording.answer_starts(200, [(b"content-type", kind), (b"cache-control", b"no-cache")])
        for piece in pieces:
            recording.answer_pieces([piece])
        recording.end(None, True)
        return recording

    recording = copied()
    framed, exchange = b"".join(frame(recording)), recording.exchange()
    received = Receivers(lambda _: None, lambda: False)

    def take() -> None:
        receiver = received.connected()
        for at in range(0, len(framed), _AT_ONCE):
            receiver.data_received(framed[at : at + _AT_ONCE])

    settings = Settings.model_validate({"explorer": {"base_url": "http://127.0.0.1:9"}})
    parsing = ParseMemory(2**30, Metrics(CollectorRegistry()))
    redactor = ExchangeRedactor(Redactor(settings.capture.redact), settings.capture.max_body, parsing)
    kept, histories = redactor.redact(exchange), Histories(Items())
    assert isinstance(kept, RedactedExchange), kept
    packed, call = pack_exchanges([kept]), read_call(kept, histories)
    assert isinstance(call, CapturedCall), call
    conversations = Conversations(settings.capture.chains)
    streamed = kind == _ENCODED
    parts: dict[str, Callable[[], object]] = {
        "proxy: keeping the pieces": copied,
        "proxy: their frame": lambda: frame(recording),
        "training side: taking it from the socket": take,
        "redaction, with what follows": lambda: redactor.redact(exchange),
        "… of it putting the stream together": (lambda: assemble(exchange.response_body or b"")) if streamed else int,
        "packing and unpacking": lambda: unpack_exchanges(pack_exchanges([kept])),
        "reading the call": lambda: read_call(kept, histories),
        "its place in its conversation": lambda: conversations.place(call, None),
    }
    assert unpack_exchanges(packed) == [kept]
    return {name: _best(part, rounds) for name, part in parts.items()}


def _best(part: Callable[[], object], rounds: int) -> float:
    """Microseconds of one repetition."""
    taken = []
    for _ in range(rounds):
        began = time.thread_time()
        for _ in range(_EACH):
            part()
        taken.append(time.thread_time() - began)
    return min(taken) / _EACH * 1e6


if __name__ == "__main__":
    main()
