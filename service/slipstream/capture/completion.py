"""One call out of what was kept of one exchange, or the reason why there is none."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import xxhash

from slipstream.capture.headers import MAX_NAME
from slipstream.capture.place import Earlier
from slipstream.capture.prefixes import Messages, messages_of
from slipstream.capture.redacted import RedactedExchange, identity_of
from slipstream.dialects.body import NotCaptured, Unreadable, read_json
from slipstream.dialects.form import Dialect, Problem
from slipstream.dialects.responses.request import conversation_of
from slipstream.dialects.translators import TRANSLATORS
from slipstream.jsontext import from_json, to_json
from slipstream.serving.served import Served
from slipstream.tenants import qualified

_MAX_MSG_ID = 256
"""Characters of a completion's id that the store keeps; no server comes near it."""

_SEED = secrets.randbits(64)
"""Seed of hashes that are compared within this process only; it is secret, so that nobody can construct bodies with
equal hashes."""


class CapturedCall(NamedTuple):
    """One call as production answered it, redacted, in the chat form. (A tuple, because there is one for each call and
    a frozen dataclass takes four times as long to make.)

    Attributes:
        request: the request body.
        answer: the whole `chat.completion` object. Choice 0 is what the user saw.
        request_text, answer_text: their JSON in UTF-8.
        msg_id: the answer's id.
        tenant: whose call it is.
        session_id, task_id: as the headers name them, qualified by the tenant; a session that none names has the id of
            the conversation that the provider holds.
        session_named: a header names the session.
        principal: a hash of the caller's credentials and user field. It keeps users apart in memory.
        digest: a hash of the principal, the route, the session and task headers and the request body: equal for a
            call and its retries.
        retry: which retry of the openai SDK this is, 0 for a first attempt.
        started_at: Unix seconds.
        latency: seconds from the request's arrival to the answer's last byte.
        dialect: in which the agent asked.
        original: the texts of the request and the answer as they came; None where they are those above.
        problem: the reason why the policy cannot be asked this.
        history: the id in the store of the answer, or of the conversation, that this call goes on from, where the
            provider holds what was said before.
        messages: the text of the request's messages, one by one.
        original_messages: that of the original request's.
        served: who answered it; None where no share was set.
    """

    request: dict[str, Any]
    answer: dict[str, Any]
    request_text: bytes
    answer_text: bytes
    msg_id: str | None
    tenant: str
    session_id: str | None
    task_id: str | None
    mark: frozenset[str]
    metadata: Mapping[str, Any]
    principal: bytes
    digest: bytes
    retry: int
    started_at: float
    latency: float
    dialect: Dialect = Dialect.CHAT
    original: tuple[bytes, bytes] | None = None
    problem: Problem | None = None
    history: str | None = None
    messages: Messages | None = None
    original_messages: Messages | None = None
    served: Served | None = None
    session_named: bool = False

    @property
    def variant(self) -> str | None:
        """The name of who answered it; None where no share was set."""
        return None if self.served is None else self.served.variant


class Seen(Protocol):
    """The parts of conversations that the provider holds, as they passed here."""

    def earlier(self, name: str) -> Earlier | None:
        """The conversation of this id, or that ends with the answer of this id, as they are in the store; None where it
        was not seen."""
        ...

    def whole(self, tenant: str, request: dict[str, Any]) -> dict[str, Any]:
        """The request with the items of earlier answers to which it only refers."""
        ...


_NO_LABELS: frozenset[str] = frozenset()


def read_call(kept: RedactedExchange, seen: Seen) -> CapturedCall | NotCaptured:
    """Read what was kept of one exchange.

    Args:
        seen: knows what the request may leave out.
    """
    try:
        return _read(kept, seen)
    except Unreadable as error:
        return NotCaptured(error.reason)


def _read(kept: RedactedExchange, seen: Seen) -> CapturedCall:
    translator = TRANSLATORS[kept.dialect]
    request, request_plain = read_json(kept.request)
    if not isinstance(request, dict) or not translator.is_request(request):
        raise Unreadable("not_a_chat")
    answer, answer_plain = read_json(kept.answer)
    if not isinstance(answer, dict):
        raise Unreadable("no_answer")
    if (flaw := translator.flaw(answer, request, whole=True)) is not None:
        raise Unreadable(flaw)
    request_text = kept.request if request_plain else to_json(request)
    answer_text = kept.answer if answer_plain else to_json(answer)
    principal = kept.credentials + (identity_of(request) if kept.identity is None else kept.identity)
    history = translator.history(request)
    ref = None if history is None else qualified(kept.tenant, history)
    before = None if ref is None else seen.earlier(ref)
    asked = seen.whole(kept.tenant, request) if kept.dialect is Dialect.RESPONSES else request
    form = translator.chat_form(asked, answer, None if before is None else before.held)
    session = kept.session_id
    if session is None and kept.dialect is Dialect.RESPONSES:
        session = _text_or_none(conversation_of(request), MAX_NAME)
    owner = kept.credentials + (kept.session_id or "").encode("utf-8", "surrogatepass")
    original = original_messages = None
    if kept.dialect is not Dialect.CHAT:
        original = request_text, answer_text
        listed = request.get(kept.dialect.messages_field)
        original_messages = messages_of(
            request_text, kept.dialect.messages_field, listed, b"%b %b" % (kept.dialect.encode(), owner)
        )
        request_text, answer_text = to_json(form.request), to_json(form.answer)
    return CapturedCall(
        request=form.request,
        answer=form.answer,
        request_text=request_text,
        answer_text=answer_text,
        msg_id=msg_id_of(answer),
        tenant=kept.tenant,
        session_id=None if session is None else qualified(kept.tenant, session),
        task_id=None if kept.task_id is None else qualified(kept.tenant, kept.task_id),
        mark=frozenset(kept.mark) if kept.mark else _NO_LABELS,
        metadata=from_json(kept.metadata)[0] if kept.metadata else {},
        principal=principal,
        digest=_digest(principal, kept),
        retry=kept.retry,
        started_at=kept.started_at,
        latency=kept.latency,
        dialect=kept.dialect,
        original=original,
        problem=form.problem if before is None else before.problem or form.problem,
        history=ref,
        messages=messages_of(request_text, "messages", form.request["messages"], owner),
        original_messages=original_messages,
        served=kept.served,
        session_named=kept.session_id is not None,
    )


def _digest(principal: bytes, kept: RedactedExchange) -> bytes:
    names = repr((kept.route, kept.session_id, kept.task_id)).encode("utf-8", "replace")
    return xxhash.xxh3_128_digest(principal + names + kept.request, _SEED)


def msg_id_of(completion: Mapping[str, Any]) -> str | None:
    """The completion's id, where it has one that the store can hold."""
    return _text_or_none(completion.get("id"), _MAX_MSG_ID)


def flaw_of(choices: Sequence[Mapping[str, Any]]) -> str | None:
    """Return why a complete answer of the policy is not usable, or None if it is."""
    reasons = [choice.get("finish_reason") for choice in choices]
    if not reasons or not all(reasons):
        return "no_finish_reason"
    # what an engine says of an answer that it broke off for its own sake, such as for new weights
    return "aborted" if "abort" in reasons else None


def _text_or_none(value: Any, limit: int | None = None) -> str | None:
    """The text where the store's columns can hold it; half of a surrogate pair, which JSON can name, they cannot."""
    good = isinstance(value, str) and value and len(value) <= (limit or len(value)) and value.isprintable()
    return value if good else None
