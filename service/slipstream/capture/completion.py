"""One call out of one exchange: the request and the whole answer, or the reason why there is none."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import xxhash

from slipstream.capture.body import Reason, Unreadable, decoded, header_fields, read_json
from slipstream.capture.headers import NAMES, SILENT, SlipstreamHeaders, read_headers
from slipstream.capture.stream import assemble
from slipstream.proxy.tap import Exchange

_MAX_MSG_ID = 256
"""Characters of a completion's id that the store keeps; no server comes near it."""

_SEED = secrets.randbits(64)
"""Of hashes that are compared within this process only, so that nobody can make bodies that share one."""

_IDENTITY_HEADERS = (b"authorization", b"api-key", b"x-api-key")
_IDENTITY_FIELDS = ("user", "safety_identifier")


class CapturedCall(NamedTuple):
    """One chat completion as production answered it; not yet redacted. (A tuple, because there is one for each call
    and a frozen dataclass takes four times as long to make.)

    Attributes:
        request: the request body.
        answer: the whole `chat.completion` object, put together where it was streamed. Choice 0 is what the user saw.
        request_text, answer_text: their JSON in UTF-8 as it passed; None where it passed in another form.
        msg_id: the completion's id.
        model: the model that the request asked for.
        principal: a hash of the caller's credentials and user field. It keeps users apart in memory, and is not to be
            stored.
        digest: a hash of the principal, the route, the session and task headers and the request body as sent: equal
            for a call and its retries.
        retry: which retry of the openai SDK this is, 0 for a first attempt.
        started_at: Unix seconds.
        latency: seconds from the request's arrival to the answer's last byte.
    """

    request: dict[str, Any]
    answer: dict[str, Any]
    request_text: bytes | None
    answer_text: bytes | None
    msg_id: str | None
    model: str | None
    headers: SlipstreamHeaders
    principal: bytes
    digest: bytes
    retry: int
    started_at: float
    latency: float
    streamed: bool
    usage: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class NotCaptured:
    """Why an exchange gives no call."""

    reason: Reason


def read_call(exchange: Exchange, max_body: int) -> CapturedCall | NotCaptured:
    """Read one exchange; never raises, whatever the bodies hold.

    Args:
        max_body: the most bytes of the request and of the answer, as sent and decompressed.
    """
    try:
        return _read(exchange, max_body)
    except Unreadable as error:
        return NotCaptured(error.reason)


def _read(exchange: Exchange, max_body: int) -> CapturedCall:
    if exchange.method != "POST" or not exchange.path.endswith("/chat/completions"):
        raise Unreadable("not_a_chat")
    fields = header_fields(exchange.request_headers)
    headers = SILENT if NAMES.isdisjoint(fields) else read_headers(exchange.request_headers)
    if headers.never:
        raise Unreadable("opted_out")
    if not exchange.complete:
        raise Unreadable("incomplete")
    if exchange.status != 200:
        raise Unreadable("status")
    if exchange.request_body is None or exchange.response_body is None:
        raise Unreadable("too_large")

    request_text = decoded(exchange.request_body, fields.get(b"content-encoding", b""), max_body)
    request, request_plain = read_json(request_text)
    if not isinstance(request, dict) or not _is_conversation(request.get("messages")):
        raise Unreadable("not_a_chat")
    if request.get("store") is False:
        raise Unreadable("opted_out")

    said = header_fields(exchange.response_headers)
    answer_text = decoded(exchange.response_body, said.get(b"content-encoding", b""), max_body)
    content_type = said.get(b"content-type", b"").strip().lower()
    # A few servers stream without saying so, but none answers JSON in the form of events.
    streamed = content_type.startswith(b"text/event-stream") or (not content_type and request.get("stream") is True)
    answer, answer_plain = (assemble(answer_text), False) if streamed else read_json(answer_text)
    if not _has_answer(answer):
        raise Unreadable("no_answer")

    principal = _principal(fields, request)
    retry = fields.get(b"x-stainless-retry-count", b"").strip()
    usage = answer.get("usage")
    return CapturedCall(
        request=request,
        answer=answer,
        request_text=request_text if request_plain else None,
        answer_text=answer_text if answer_plain else None,
        msg_id=msg_id_of(answer),
        model=_text_or_none(request.get("model")),
        headers=headers,
        principal=principal,
        digest=_digest(principal, exchange.path, headers, exchange.request_body),
        retry=int(retry[:9]) if retry.isdigit() else 0,
        started_at=exchange.started_at,
        latency=exchange.duration,
        streamed=streamed,
        usage=usage if isinstance(usage, dict) else None,
    )


def _principal(fields: Mapping[bytes, bytes], request: Mapping[str, Any]) -> bytes:
    credentials = [fields.get(name, b"").strip() for name in _IDENTITY_HEADERS]
    if names := [(name, request[name]) for name in _IDENTITY_FIELDS if request.get(name)]:
        credentials.append(repr(names).encode())
    return hashlib.blake2b(b"\n".join(credentials), digest_size=16).digest()


def _digest(principal: bytes, path: str, headers: SlipstreamHeaders, body: bytes) -> bytes:
    names = repr((path, headers.session_id, headers.task_id)).encode("utf-8", "replace")
    return xxhash.xxh3_128_digest(principal + names + body, _SEED)


def msg_id_of(completion: Mapping[str, Any]) -> str | None:
    """The completion's id, where it has one that the store can hold."""
    return _text_or_none(completion.get("id"), _MAX_MSG_ID)


def flaw_of(choices: Sequence[Mapping[str, Any]]) -> str | None:
    """Why an answer of the policy is not whole, though it came to its end; None where it is."""
    reasons = [choice.get("finish_reason") for choice in choices]
    if not reasons or not all(reasons):
        return "no_finish_reason"
    # what an engine says of an answer that it broke off for its own sake, such as for new weights
    return "aborted" if "abort" in reasons else None


def _is_conversation(messages: Any) -> bool:
    return isinstance(messages, list) and bool(messages) and not set(map(type, messages)) - {dict}


def _has_answer(answer: Any) -> bool:
    choices = answer.get("choices") if isinstance(answer, dict) else None
    return (
        isinstance(choices, list)
        and bool(choices)
        and all(isinstance(choice, dict) and isinstance(choice.get("message"), dict) for choice in choices)
    )


def _text_or_none(value: Any, limit: int | None = None) -> str | None:
    """The text where the store's columns can hold it; half of a surrogate pair, which JSON can name, they cannot."""
    good = isinstance(value, str) and value and len(value) <= (limit or len(value)) and value.isprintable()
    return value if good else None
