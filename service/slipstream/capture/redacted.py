"""An exchange in the form in which it is stored until it is read: without secrets in its head, with redacted bodies.

Most bodies hold nothing that is to be redacted. One scan tells, and they are kept as they are, unread: reading a call
takes several times as long as keeping it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from xxhash import xxh3_64_intdigest

from slipstream.capture.headers import NAMES, SILENT, read_headers
from slipstream.dialects.body import NotCaptured, Unreadable, header_fields, read_json
from slipstream.dialects.chat_stream import MAX_VALUES_OF_CHUNKS
from slipstream.dialects.form import Dialect, dialect_of
from slipstream.dialects.translators import TRANSLATORS
from slipstream.http.encodings import Undecodable, decoded
from slipstream.jsontext import to_json
from slipstream.memory.parsing import ParseMemory, memory_of
from slipstream.proxy.tap import Exchange
from slipstream.redaction.media import SIGNS as MEDIA_SIGNS
from slipstream.redaction.media import may_hold_media, without_media
from slipstream.redaction.redactor import Redactor
from slipstream.redaction.rules import RedactionFailed
from slipstream.redaction.suspects import Suspects
from slipstream.serving.served import Served
from slipstream.tenants import DEFAULT, qualified

_KEY = secrets.token_bytes(32)
"""Key of hashes that are kept for a moment, so that nobody can guess the hashed text."""
_SEED = int.from_bytes(_KEY[:8])

_COPIES = 2
"""Copies of a body's values: redaction makes one."""

_WHATEVER_CAME = ("not_a_chat", "opted_out")
"""Reasons that the request alone gives."""

_IDENTITY_HEADERS = (b"authorization", b"api-key", b"x-api-key", b"x-goog-api-key")
_IDENTITY_FIELDS = ("user", "safety_identifier")


class RedactedExchange(msgspec.Struct, array_like=True):
    """An exchange as it waits to be read.

    Attributes:
        request: JSON, redacted. Nothing says yet that it asks for an answer.
        answer: JSON, redacted, put together where it was streamed.
        credentials: a keyed hash of who the caller is: its tenant, the name of its key of ours, its credentials for
            production, and the headers of `access.identity_headers`.
        identity: what `identity_of` says of the request as it was sent; None where that is the one here.
        route: a keyed hash of the path.
        retry: which retry of the openai SDK this is, 0 for a first attempt.
        started_at: Unix seconds.
        latency: seconds from the request's arrival to the answer's last byte.
        session_id, task_id: as the headers name them, redacted.
        mark: the labels, redacted; empty where the call is not marked.
        metadata: a JSON object, redacted; b"" where there is none.
        problems: the `x-slipstream-...` headers that were left out.
        tenant: whose call it is, and whose names the session and the task have.
        dialect: of the request and the answer.
        held: `capture.rate` takes it if it takes the answer that it goes on from, which the provider holds.
        served: who answered it; None where no share was set. Of one that is not captured it is all that is kept: then
            `request` is empty.
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
    tenant: str = DEFAULT
    dialect: Dialect = Dialect.CHAT
    held: bool = False
    served: Served | None = None


def outcome_of(exchange: Exchange) -> RedactedExchange | None:
    """An exchange that is not captured, as far as it is kept all the same: how the call went, in which arm, and nothing
    of who asked what. None for one that was in no arm."""
    if exchange.served is None or exchange.served.arm is None:
        return None
    return RedactedExchange(
        request=b"",
        answer=b"",
        credentials=b"",
        identity=None,
        route=0,
        retry=0,
        started_at=exchange.started_at,
        latency=exchange.duration,
        tenant=exchange.tenant,
        served=exchange.served,
    )


pack_exchanges = msgspec.msgpack.Encoder().encode
"""Several `RedactedExchange`, as one text of bytes."""

unpack_exchanges = msgspec.msgpack.Decoder(list[RedactedExchange]).decode
"""The `RedactedExchange` that were packed. Raises msgspec.MsgspecError where another release packed them."""


def is_of(packed: bytes, kind: Literal["session_id", "task_id"], ref: str) -> bool:
    """Return whether packed exchanges name this session, or task, in their headers. Their bodies are not read.

    Args:
        ref: its id in the store.
    """
    try:
        kept = unpack_exchanges(packed)
    except msgspec.MsgspecError:  # another release packed it
        return False
    names = [(one.tenant, one.session_id if kind == "session_id" else one.task_id) for one in kept]
    return any(name is not None and qualified(tenant, name) == ref for tenant, name in names)


class _Texts(NamedTuple):
    """The bodies of an exchange that is to be read, decoded.

    Attributes:
        answer: or why it cannot be decoded, which counts only where the request is a chat.
        whole: the answer came to its end.
        streamed: the answer says that it is a stream.
    """

    request: bytes
    answer: bytes | Undecodable
    whole: bool
    streamed: bool

    @property
    def memory(self) -> int:
        """Return the bytes of memory that reading both takes."""
        size = memory_of(self.request, copies=_COPIES)
        if isinstance(self.answer, bytes):
            size += memory_of(self.answer, copies=_COPIES, most=MAX_VALUES_OF_CHUNKS)
        return size


class ExchangeRedactor:
    """Says what is to be kept of an exchange.

    Args:
        parsing: the memory for bodies while they are read. Threads wait for it.
        max_body: the most bytes of the request and of the answer, as sent and decompressed.
        identity_headers: by which callers are told apart, beside their credentials; in lower case.
        skip_store_false: `"store": false` in a request opts out.
    """

    def __init__(
        self,
        redactor: Redactor,
        max_body: int,
        parsing: ParseMemory,
        identity_headers: Sequence[str] = (),
        *,
        skip_store_false: bool = True,
    ) -> None:
        self._redactor = redactor
        self._parsing = parsing
        self._max_body = max_body
        self._identity_headers = (*_IDENTITY_HEADERS, *(name.encode() for name in identity_headers))
        self._skip_store_false = skip_store_false
        signs = redactor.signs
        # what says `"store": false` is not to be kept at all, and of media a reference
        store = {"store": ('"store"',)} if skip_store_false else {}
        self._suspects = None if signs is None else Suspects({**signs, **store, "media": MEDIA_SIGNS})

    def redact(self, exchange: Exchange) -> RedactedExchange | NotCaptured:
        """Return the exchange as it may be stored, or why it is not captured; takes any bodies."""
        try:
            return self._redacted(exchange)
        except (Unreadable, Undecodable) as error:
            if not exchange.complete and error.reason not in _WHATEVER_CAME:
                return NotCaptured("incomplete")  # what is wrong with a part of an answer says nothing
            return NotCaptured(error.reason)
        except RedactionFailed:
            return NotCaptured("redaction_failed")

    def _redacted(self, exchange: Exchange) -> RedactedExchange:
        dialect = dialect_of(exchange.path)
        if exchange.method != "POST" or dialect is None:
            raise Unreadable("not_a_chat")
        fields = header_fields(exchange.request_headers)
        said = SILENT if NAMES.isdisjoint(fields) else read_headers(exchange.request_headers)
        if said.never:
            raise Unreadable("opted_out")
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
        whole = exchange.complete
        if streamed or not whole or not content_type or encodings != (b"", b"") or not self._may_stay(request, answer):
            plain = decoded(request, encodings[0], self._max_body)
            texts = _Texts(plain, self._decoded(answer, encodings[1], whole), whole, streamed)
            with self._parsing.held_by_thread(texts.memory):
                identity, request, answer = self._read(texts, dialect, typed=bool(content_type))

        retry = fields.get(b"x-stainless-retry-count", b"").strip()
        kept = RedactedExchange(
            request=request,
            answer=answer,
            credentials=self._credentials(exchange, fields),
            identity=identity,
            route=xxh3_64_intdigest(exchange.path.encode(), _SEED),
            retry=int(retry[:9]) if retry.isdigit() else 0,
            started_at=exchange.started_at,
            latency=exchange.duration,
            tenant=exchange.tenant,
            dialect=dialect,
            served=exchange.served,
        )
        if said is not SILENT:
            kept.session_id, kept.task_id = map(self._name, (said.session_id, said.task_id))
            kept.problems = said.problems
            kept.mark = tuple(self._redactor.redact(list(said.mark), strict=True))
            kept.metadata = to_json(self._redactor.redact(dict(said.metadata), strict=True))
        return kept

    def _redacted_request(self, text: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
        """The request as it was sent, and without secrets, and that as JSON."""
        request, plain = read_json(text)
        if not isinstance(request, dict):
            raise Unreadable("not_a_chat")
        if self._skip_store_false and request.get("store") is False:
            raise Unreadable("opted_out")
        light = without_media(request) if may_hold_media(text) else request
        return request, *self._redactor.redact_json(light, text if plain and light is request else None)

    def _decoded(self, answer: bytes, encoding: bytes, whole: bool) -> bytes | Undecodable:
        try:
            return decoded(answer, encoding, self._max_body, whole=whole)
        except Undecodable as error:
            return error

    def _read(self, texts: _Texts, dialect: Dialect, *, typed: bool) -> tuple[bytes, bytes, bytes]:
        """The identity of the request, and both bodies, redacted.

        Args:
            typed: the answer states what it is. A few servers stream without saying so, but none answers JSON in the
                form of events.
        """
        asked, redacted, request = self._redacted_request(texts.request)
        identity = identity_of(asked)
        streamed = texts.streamed or (not typed and asked.get("stream") is True)
        if isinstance(plain := texts.answer, Undecodable):
            raise plain
        translator = TRANSLATORS[dialect]
        read, text = (translator.assemble(plain, asked), None) if streamed else _read_answer(plain)
        read = without_media(read) if streamed and may_hold_media(plain) else read
        if (flaw := translator.flaw(read, asked, whole=texts.whole or streamed)) is not None:
            raise Unreadable(flaw)
        prompt_redacted = redacted is not asked
        kept = self._redactor.redact_json(read, text, answer=True, prompt_redacted=prompt_redacted)[1]
        return identity, request, kept

    def _credentials(self, exchange: Exchange, fields: Mapping[bytes, bytes]) -> bytes:
        said = [fields.get(name, b"").strip() for name in self._identity_headers]
        return _hash(b"\n".join([exchange.tenant.encode(), (exchange.key or "").encode(), *said]))

    def _name(self, name: str | None) -> str | None:
        return None if name is None else self._redactor.redact_id(name)

    def _may_stay(self, request: bytes, answer: bytes) -> bool:
        """Return whether both bodies can be stored without being parsed: if they are JSON, they are objects without
        anything suspicious."""
        if self._suspects is None or not (_is_object(request) and _is_object(answer)):
            return False
        return not self._suspects.within(b"%b\n%b" % (request, answer))  # one scan of both takes less than two


def identity_of(request: Mapping[str, Any]) -> bytes:
    """A keyed hash of what the request says about its user, b"" where it says nothing."""
    names = [(name, request[name]) for name in _IDENTITY_FIELDS if request.get(name)]
    metadata = request.get("metadata")
    if isinstance(metadata, dict) and metadata.get("user_id"):  # as Anthropic's API names the user
        names.append(("user_id", metadata["user_id"]))
    return _hash(repr(names).encode()) if names else b""


def _is_object(text: bytes) -> bool:
    """Return whether JSON in UTF-8 is an object; in UTF-16 or UTF-32 one end has a zero byte."""
    return text.lstrip()[:1] == b"{" and text.rstrip()[-1:] == b"}"  # which copy nothing where there is no blank


def _read_answer(text: bytes) -> tuple[dict[str, Any], bytes | None]:
    """The answer, and its text where that can stand for it."""
    answer, plain = read_json(text)
    if not isinstance(answer, dict):
        raise Unreadable("no_answer")
    light = without_media(answer) if may_hold_media(text) else answer
    return light, text if plain and light is answer else None


def _hash(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16, key=_KEY).digest()
