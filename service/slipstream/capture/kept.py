"""What is kept of an exchange until there is time to read it: no secret of its head, its bodies redacted.

Most bodies hold nothing that is to be redacted. One scan tells, and they are kept as they are, unread: reading a call
takes several times as long as keeping it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec
from xxhash import xxh3_64_intdigest

from slipstream.capture.body import NotCaptured, Unreadable, header_fields, read_json
from slipstream.capture.headers import NAMES, SILENT, read_headers
from slipstream.capture.stream import assemble
from slipstream.encodings import Undecodable, decoded
from slipstream.jsontext import to_json
from slipstream.proxy.tap import Exchange
from slipstream.redaction import RedactionFailed, Redactor
from slipstream.suspects import Suspects

_KEY = secrets.token_bytes(32)
"""Of hashes that are kept for a moment, so that nobody can guess what they are of."""
_SEED = int.from_bytes(_KEY[:8])

_IDENTITY_HEADERS = (b"authorization", b"api-key", b"x-api-key")
_IDENTITY_FIELDS = ("user", "safety_identifier")


class Kept(msgspec.Struct, array_like=True):
    """An exchange as it waits to be read.

    Attributes:
        request: JSON, redacted. Nothing says yet that it is a chat.
        answer: JSON, redacted, put together where it was streamed.
        credentials: a keyed hash of the caller's credentials.
        identity: what `identity_of` says of the request as it was sent; None where that is the one here.
        route: a keyed hash of the path.
        retry: which retry of the openai SDK this is, 0 for a first attempt.
        started_at: Unix seconds.
        latency: seconds from the request's arrival to the answer's last byte.
        session_id, task_id: as the headers name them.
        mark: the labels, redacted; empty where the call is not marked.
        metadata: a JSON object, redacted; b"" where there is none.
        problems: the `x-slipstream-...` headers that were left out.
    """

    request: bytes
    answer: bytes
    credentials: bytes
    identity: bytes | None
    route: int
    retry: int
    started_at: float
    latency: float
    session_id: str | None = None
    task_id: str | None = None
    mark: tuple[str, ...] = ()
    metadata: bytes = b""
    problems: tuple[str, ...] = ()


pack_kept = msgspec.msgpack.Encoder().encode
"""Several `Kept`, as one text of bytes."""

unpack_kept = msgspec.msgpack.Decoder(list[Kept]).decode
"""The `Kept` that were packed. Raises msgspec.MsgspecError where another release packed them."""


class Keeper:
    """Says what is to be kept of an exchange.

    Args:
        max_body: the most bytes of the request and of the answer, as sent and decompressed.
    """

    def __init__(self, redactor: Redactor, max_body: int) -> None:
        self._redactor = redactor
        self._max_body = max_body
        signs = redactor.signs
        # what says `"store": false` is not to be kept at all
        self._suspects = None if signs is None else Suspects({**signs, "store": ('"store"',)})

    def keep(self, exchange: Exchange) -> Kept | NotCaptured:
        """What is to be kept; for any bodies."""
        try:
            return self._keep(exchange)
        except (Unreadable, Undecodable) as error:
            return NotCaptured(error.reason)
        except RedactionFailed:
            return NotCaptured("redaction_failed")

    def _keep(self, exchange: Exchange) -> Kept:
        if exchange.method != "POST" or not exchange.path.endswith("/chat/completions"):
            raise Unreadable("not_a_chat")
        fields = header_fields(exchange.request_headers)
        said = SILENT if NAMES.isdisjoint(fields) else read_headers(exchange.request_headers)
        if said.never:
            raise Unreadable("opted_out")
        if not exchange.complete:
            raise Unreadable("incomplete")
        if exchange.status != 200:
            raise Unreadable("status")
        request, answer = exchange.request_body, exchange.response_body
        if request is None or answer is None or len(request) > self._max_body or len(answer) > self._max_body:
            raise Unreadable("too_large")

        answered = header_fields(exchange.response_headers)
        encodings = fields.get(b"content-encoding", b""), answered.get(b"content-encoding", b"")
        content_type = answered.get(b"content-type", b"").strip().lower()
        identity = None
        streamed = content_type.startswith(b"text/event-stream")  # a secret can be in pieces there
        if streamed or not content_type or encodings != (b"", b"") or not self._may_stay(request, answer):
            request, identity, streams = _redacted_request(
                decoded(request, encodings[0], self._max_body), self._redactor
            )
            # A few servers stream without saying so, but none answers JSON in the form of events.
            streamed = streamed or (not content_type and streams)
            answer = _redacted_answer(decoded(answer, encodings[1], self._max_body), streamed, self._redactor)

        retry = fields.get(b"x-stainless-retry-count", b"").strip()
        kept = Kept(
            request=request,
            answer=answer,
            credentials=_hash(b"\n".join([fields.get(name, b"").strip() for name in _IDENTITY_HEADERS])),
            identity=identity,
            route=xxh3_64_intdigest(exchange.path.encode(), _SEED),
            retry=int(retry[:9]) if retry.isdigit() else 0,
            started_at=exchange.started_at,
            latency=exchange.duration,
        )
        if said is not SILENT:
            kept.session_id, kept.task_id, kept.problems = said.session_id, said.task_id, said.problems
            kept.mark = tuple(self._redactor.redact(list(said.mark), strict=True))
            kept.metadata = to_json(self._redactor.redact(dict(said.metadata), strict=True))
        return kept

    def _may_stay(self, request: bytes, answer: bytes) -> bool:
        """Whether both are JSON objects, should they be JSON, that hold nothing for which they must be read."""
        if self._suspects is None or not (_is_object(request) and _is_object(answer)):
            return False
        return not self._suspects.within(b"%b\n%b" % (request, answer))  # one scan of both takes less than two


def identity_of(request: Mapping[str, Any]) -> bytes:
    """A keyed hash of what the request says about its user, b"" where it says nothing."""
    names = [(name, request[name]) for name in _IDENTITY_FIELDS if request.get(name)]
    return _hash(repr(names).encode()) if names else b""


def _is_object(text: bytes) -> bool:
    """Whether JSON in UTF-8 is an object; what is in UTF-16 or UTF-32 has a zero byte at one end."""
    return text.lstrip()[:1] == b"{" and text.rstrip()[-1:] == b"}"  # which copy nothing where there is no blank


def _redacted_request(text: bytes, redactor: Redactor) -> tuple[bytes, bytes, bool]:
    """The request without secrets, its identity, and whether it asks for a stream."""
    request, plain = read_json(text)
    if not isinstance(request, dict):
        raise Unreadable("not_a_chat")
    if request.get("store") is False:
        raise Unreadable("opted_out")
    _, redacted = redactor.redact_json(request, text if plain else None)
    return redacted, identity_of(request), request.get("stream") is True


def _redacted_answer(text: bytes, streamed: bool, redactor: Redactor) -> bytes:
    answer, plain = (assemble(text), False) if streamed else read_json(text)
    if not isinstance(answer, dict):
        raise Unreadable("no_answer")
    return redactor.redact_json(answer, text if plain else None)[1]


def _hash(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16, key=_KEY).digest()
