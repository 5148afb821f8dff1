"""Calls that did not pass here, made ready to be stored as captured ones are: the same redaction, limits and form."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from slipstream.capture.completion import CapturedCall, read_call
from slipstream.capture.conversations import completes
from slipstream.capture.histories import Histories, Items, Newest
from slipstream.capture.prefixes import Prefixes
from slipstream.capture.redacted import ExchangeRedactor, RedactedExchange
from slipstream.dialects.body import NotCaptured, Reason
from slipstream.errors import SlipstreamError
from slipstream.jsontext import to_json
from slipstream.memory.parsing import ParseMemory, memory_of
from slipstream.proxy.tap import Exchange
from slipstream.store.bodies import pack
from slipstream.store.recording import NewCall
from slipstream.tenants import qualified

MOST_BYTES = 64 * 1024**2
"""Limit of the bodies of one conversation: each call repeats the messages of those before it."""

_COPIES = 3
"""Copies of a body's values, as the recorder makes them."""

_PATH = "/v1/chat/completions"


class GivenCall(NamedTuple):
    """A call as it was handed in.

    Attributes:
        name: its id where it came from, of its own within its task; "" for none.
        request: of the chat completions API, whole.
        message: the assistant's.
    """

    name: str
    request: Mapping[str, Any]
    message: Mapping[str, Any]
    finish_reason: str | None = None
    usage: Mapping[str, Any] | None = None
    latency: float = 0.0


class GivenTask(NamedTuple):
    """A task as it was handed in.

    Attributes:
        name: its id where it came from, of its own within its conversation; "" for none.
        metadata: of the task.
    """

    name: str
    calls: Sequence[GivenCall]
    metadata: Mapping[str, Any]


class Origin(NamedTuple):
    """Origin of a conversation.

    Attributes:
        tenant: whose it is.
        source: the format or program that it came from.
        name: its id there; "" for one that is made of what was said.
        session: as callers name it; None for one that is made of `name`.
        labels: of its tasks.
    """

    tenant: str
    source: str
    name: str
    session: str | None
    labels: Sequence[str]


class CannotImport(SlipstreamError):
    """A call cannot be stored.

    Attributes:
        task, call: its place in the conversation, counted from 0.
        reason: as an exchange that is not captured has one.
    """

    def __init__(self, task: int, call: int, reason: Reason) -> None:
        super().__init__(reason)
        self.task = task
        self.call = call
        self.reason = reason


class Importer:
    """Makes calls of conversations that were handed in.

    Ids are made of what they name, so that the same conversation has the same ones each time. Where they are made of
    what was said, then of its redacted form: nobody can try out what a hash was made of.

    Args:
        redactor: as capture has it.
        parsing: the memory for bodies while they are read. Threads wait for it.
        chains: requests that may be gone on from are remembered.
    """

    def __init__(self, redactor: ExchangeRedactor, parsing: ParseMemory, chains: int) -> None:
        self._redactor = redactor
        self._parsing = parsing
        self._chains = chains

    def read(self, origin: Origin, tasks: Sequence[GivenTask], now: float) -> list[list[NewCall]]:
        """Return the calls of each task of a conversation. Takes a while for a long one: call it in a thread.

        Args:
            now: as the time of the calls. Retention, and what is said of a session from now on, go by that.

        Raises:
            CannotImport: one of them cannot be stored, so none is to be.
        """
        kept = self._redacted(origin, tasks, now)
        name = origin.name or _digest(one for task in kept for one in task)
        prefixes, histories = Prefixes(self._chains), Histories(Items(), Newest(1))
        read = []
        for place, (task, exchanges) in enumerate(zip(tasks, kept, strict=True)):
            calls = []
            for number, (call, one) in enumerate(zip(task.calls, exchanges, strict=True)):
                one.session_id = one.session_id or _made("session", origin.source, name)
                one.task_id = _made("task", origin.source, one.session_id, name, task.name or f"\0{place}")
                msg_id = _made("answer", one.task_id, call.name or f"\0{number}", _digest([one]))
                with self._parsing.held_by_thread(memory_of(one.request, one.answer, copies=_COPIES)):
                    made = read_call(one, histories)
                    if isinstance(made, NotCaptured):
                        raise CannotImport(place, number, made.reason)
                    calls.append(_stored_form(made, msg_id, prefixes))
            read.append(calls)
        return read

    def _redacted(self, origin: Origin, tasks: Sequence[GivenTask], now: float) -> list[list[RedactedExchange]]:
        size, kept = 0, []
        for place, task in enumerate(tasks):
            exchanges = []
            for number, call in enumerate(task.calls):
                exchange = _exchange(origin, task, call, now)
                size += len(exchange.request_body or b"") + len(exchange.response_body or b"")
                one = NotCaptured("too_large") if size > MOST_BYTES else self._redactor.redact(exchange)
                if isinstance(one, NotCaptured):
                    raise CannotImport(place, number, one.reason)
                exchanges.append(one)
            kept.append(exchanges)
        return kept


def _stored_form(made: CapturedCall, msg_id: str, prefixes: Prefixes) -> NewCall:
    assert made.session_id is not None, "given, or made here"
    assert made.task_id is not None, "made here"
    return NewCall(
        session_id=made.session_id,
        task_id=made.task_id,
        request=prefixes.stored_form(made.request_text, made.messages),
        answer=pack({**made.answer, "id": msg_id}),
        msg_id=qualified(made.tenant, msg_id),
        latency=made.latency,
        started_at=made.started_at,
        completes=completes(made),
        marked=False,  # a mark asks for training, and a label here says only where it came from
        labels=made.mark,
        metadata=made.metadata,
        problem=made.problem,
    )


def _exchange(origin: Origin, task: GivenTask, call: GivenCall, now: float) -> Exchange:
    """Return the exchange that the proxy would have seen."""
    reason = call.finish_reason or ("tool_calls" if call.message.get("tool_calls") else "stop")
    answer: dict[str, Any] = {
        "id": "",
        "object": "chat.completion",
        "created": 0,
        "model": call.request.get("model") or "unknown",
        "choices": [{"index": 0, "message": call.message, "finish_reason": reason}],
    }
    if call.usage is not None:
        answer["usage"] = call.usage
    headers = [
        (b"content-type", b"application/json"),
        (b"x-slipstream-mark", ",".join(origin.labels).encode()),
        (b"x-slipstream-metadata", to_json(task.metadata)),
    ]
    if origin.session is not None:
        headers.append((b"x-slipstream-session-id", origin.session.encode()))
    return Exchange(
        method="POST",
        path=_PATH,
        request_headers=headers,
        started_at=now,
        tenant=origin.tenant,
        status=200,
        response_headers=[(b"content-type", b"application/json")],
        duration=call.latency,
        drawn=True,
        request_body=to_json(call.request),
        response_body=to_json(answer),
    )


def _digest(exchanges: Iterable[RedactedExchange]) -> str:
    """Return a hash of what was said in these exchanges, as it is stored."""
    digest = hashlib.sha256()
    for one in exchanges:
        digest.update(len(one.request).to_bytes(8) + one.request + one.answer)
    return digest.hexdigest()


def _made(kind: str, *names: str) -> str:
    """Return an id that is made of names: the same for the same."""
    text = to_json([kind, *names])
    return f"import-{hashlib.sha256(text).hexdigest()[:32]}"
