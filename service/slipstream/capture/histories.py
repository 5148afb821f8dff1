"""Conversations whose beginning the provider holds: what was said before, as it was captured.

A request of the Responses API may name the answer that it goes on from, and leave out all that came before. The policy
cannot be asked that way, so the conversation is put together again from the calls that are in the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slipstream.capture.completion import CapturedCall
from slipstream.capture.place import Earlier, Place
from slipstream.capture.redacted import RedactedExchange
from slipstream.dialects.body import Unreadable, read_json
from slipstream.dialects.form import Dialect
from slipstream.dialects.translators import TRANSLATORS
from slipstream.jsontext import from_json
from slipstream.store.bodies import unpack
from slipstream.store.histories import StoredCall
from slipstream.tenants import qualified
from slipstream.trajectory import Message, answer_message

_SIGNS = (b'"previous_response_id"', b'"conversation"')
"""Fields of a request that may name what came before."""


class Histories:
    """Earlier conversations, by the ids in the store of the answers that they end with."""

    def __init__(self, stored: Iterable[StoredCall] = ()) -> None:
        self._known = {call.msg_id: _of_stored(call) for call in stored}

    def get(self, msg_id: str) -> Earlier | None:
        """The conversation that ends with this answer; None where it was not seen."""
        return self._known.get(msg_id)

    def add(self, call: CapturedCall, place: Place) -> None:
        """Remember a call, for those after it that are read before it is in the store."""
        if call.dialect is Dialect.RESPONSES and call.msg_id is not None and call.original is not None:
            said = _spoken(call.request["messages"], call.answer, from_json(call.original[0])[0])
            self._known[qualified(call.tenant, call.msg_id)] = Earlier(said, call.problem, place)


def named_in(packed: bytes) -> bool:
    """Return whether any of these exchanges, packed, may go on from what the provider holds."""
    return any(sign in packed for sign in _SIGNS)


def names_of(exchanges: Iterable[RedactedExchange]) -> set[str]:
    """The ids in the store of the answers that these exchanges go on from."""
    found = set()
    for kept in exchanges:
        if kept.dialect is not Dialect.RESPONSES or not named_in(kept.request):
            continue
        try:
            request = read_json(kept.request)[0]
        except Unreadable:
            continue
        if isinstance(request, dict) and (name := TRANSLATORS[kept.dialect].history(request)) is not None:
            found.add(qualified(kept.tenant, name))
    return found


def _of_stored(call: StoredCall) -> Earlier:
    messages = unpack(call.request)["messages"]
    said = _spoken(messages, unpack(call.answer), unpack(call.original_request))
    return Earlier(said, call.problem, Place(call.session_id, call.task_id))


def _spoken(messages: Sequence[Message], answer: Mapping[str, Any], original: Mapping[str, Any]) -> list[Message]:
    return [*messages[1 if original.get("instructions") else 0 :], answer_message(answer)]
