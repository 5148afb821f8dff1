"""Conversations of which the provider holds a part: what that is, as it was captured.

A request of the Responses API may name the answer or the conversation that it goes on from, or single items of earlier
answers, and leave out what they say; one of the Messages API may go on in a thread, and leave out the instructions and
the tools too. The policy cannot be asked that way, so the conversation is put together again: from the calls that are
in the store, and from the newest items, which are in memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from slipstream.capture.completion import CapturedCall
from slipstream.capture.place import Earlier, Place
from slipstream.capture.redacted import RedactedExchange
from slipstream.dialects.body import Unreadable, read_json
from slipstream.dialects.form import Dialect, Held, Problem, messages_up_to
from slipstream.dialects.responses.references import references, resolved
from slipstream.dialects.responses.request import conversation_of
from slipstream.dialects.translators import TRANSLATORS
from slipstream.jsontext import from_json, to_json
from slipstream.store.bodies import unpack
from slipstream.store.histories import StoredCall
from slipstream.tenants import qualified

_SIGNS = (b'"previous_response_id"', b'"conversation"', b'"previous_message_id"')
"""Fields of a request that may name what came before."""


_REFERENCE = b'"item_reference"'
"""The type of an item of a request that names one of an earlier answer."""


_THREAD = b'"thread"'
"""The field by which a request of the Messages API asks the provider to hold the conversation."""


_LAST = 8
"""Messages that are kept of what a `conversation` has said: to be read, for the policy is never asked to go on from
there. With all of them each of its calls would be larger than the one before, as its client's requests are not."""


class _Item(NamedTuple):
    """An item of an answer, with the size of its JSON in bytes, and the place and the beginning of its call."""

    item: dict[str, Any]
    size: int
    place: Place
    started_at: float


class Items:
    """Items of earlier answers, the newest, by the ids that the provider gave them.

    Args:
        limit: bytes of their JSON.
    """

    def __init__(self, limit: int = 32 * 1024**2) -> None:
        self._left = limit
        self._known: OrderedDict[str, _Item] = OrderedDict()

    def add(self, tenant: str, answer: Mapping[str, Any], place: Place, started_at: float) -> None:
        """Remember the items of an answer.

        Args:
            started_at: when its call began, Unix seconds.
        """
        for item in answer["output"]:
            name = item.get("id") if isinstance(item, dict) else None
            if isinstance(name, str):
                ref = qualified(tenant, name)
                self._drop(ref)
                self._known[ref] = kept = _Item(item, len(to_json(item)), place, started_at)
                self._left -= kept.size
        while self._left < 0:
            self._drop(next(iter(self._known)))

    def forget(self, erased: Mapping[tuple[str, str], float], before: float) -> None:
        """Leave out what the store must not have again.

        Args:
            erased: deletions on request, as of `erasure.standing`.
            before: Unix seconds; calls from before that are kept no longer.
        """
        for ref, (_, _, place, started_at) in list(self._known.items()):
            names = ("session_id", place.session_id), ("task_id", place.task_id)
            if started_at < before or any(started_at <= erased.get(name, 0.0) for name in names):
                self._drop(ref)

    def _drop(self, ref: str) -> None:
        if (kept := self._known.pop(ref, None)) is not None:
            self._left += kept.size

    def within(self, tenant: str, request: dict[str, Any]) -> dict[str, Any]:
        """The request with the items that it refers to, as far as they are known."""
        names = references(request)
        if not names:
            return request
        found = {name: self._known.get(qualified(tenant, name)) for name in names}
        return resolved(request, {name: known.item for name, known in found.items() if known is not None})


class Newest:
    """The newest answer of each conversation that has an id of its own, all by their ids in the store.

    Args:
        limit: conversations; those that nothing was heard of for longest go first.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._answers: OrderedDict[str, str] = OrderedDict()

    def add(self, conversation: str, answer: str) -> None:
        """An answer was given in a conversation."""
        self._answers[conversation] = answer
        self._answers.move_to_end(conversation)
        if len(self._answers) > self._limit:
            self._answers.popitem(last=False)

    def answer(self, name: str) -> str:
        """The newest answer of a conversation; the name itself where it is that of an answer, or nothing is known."""
        return self._answers.get(name, name)


class Histories:
    """Earlier conversations, by the ids in the store of the answers that they end with, or by their own.

    Args:
        items: of earlier answers.
        newest: answers of conversations.
        stored: calls that a batch of exchanges goes on from.
    """

    def __init__(self, items: Items, newest: Newest, stored: Iterable[StoredCall] = ()) -> None:
        self._items = items
        self._newest = newest
        self._known = {call.msg_id: _of_stored(call) for call in stored}

    def earlier(self, name: str) -> Earlier | None:
        """The conversation of this id, or that ends with the answer of this id; None where it was not seen."""
        return self._known.get(self._newest.answer(name))

    def whole(self, tenant: str, request: dict[str, Any]) -> dict[str, Any]:
        """The request with the items of earlier answers to which it only refers."""
        return self._items.within(tenant, request)

    def add(self, call: CapturedCall, place: Place) -> None:
        """Remember a call, for those after it that are read before it is in the store."""
        if call.original is None:
            return
        asked, answered = call.original
        if call.dialect is Dialect.RESPONSES:
            self._items.add(call.tenant, from_json(answered)[0], place, call.started_at)
        elif _THREAD not in asked:
            return
        if call.msg_id is not None:
            request, ref = from_json(asked)[0], qualified(call.tenant, call.msg_id)
            self._known[ref] = Earlier(_held(call.request, call.answer, request, call.problem), call.problem, place)
            if call.dialect is Dialect.RESPONSES and (conversation := conversation_of(request)) is not None:
                self._newest.add(qualified(call.tenant, conversation), ref)


def refers(packed: bytes) -> bool:
    """Return whether any of these exchanges, packed, may refer to an item of an earlier answer."""
    return _REFERENCE in packed


def named_in(packed: bytes) -> bool:
    """Return whether any of these exchanges, packed, may go on from what the provider holds."""
    return any(sign in packed for sign in _SIGNS)


def names_of(exchanges: Iterable[RedactedExchange]) -> set[str]:
    """The ids in the store of the answers, and of the conversations, that these exchanges go on from."""
    found = set()
    for kept in exchanges:
        if kept.dialect is Dialect.CHAT or not named_in(kept.request):
            continue
        try:
            request = read_json(kept.request)[0]
        except Unreadable:
            continue
        if isinstance(request, dict) and (name := TRANSLATORS[kept.dialect].history(request)) is not None:
            found.add(qualified(kept.tenant, name))
    return found


def _of_stored(call: StoredCall) -> Earlier:
    held = _held(call.request.read(), unpack(call.answer), call.original_request.read(), call.problem)
    return Earlier(held, call.problem, Place(call.session_id, call.task_id))


def _held(
    request: Mapping[str, Any], answer: Mapping[str, Any], original: Mapping[str, Any], problem: Problem | None
) -> Held:
    """A call in the chat form as its provider holds it: a thread has instructions and tools of its own, and those of
    the Responses API hold for one call. Of a `conversation`, the first message, which says that its beginning is
    unseen, and the last ones."""
    in_thread = isinstance(original.get("thread"), dict)
    messages = messages_up_to(request, answer, instructed=bool(original.get("instructions")))
    if problem is not None and len(messages) > 1 + _LAST and conversation_of(original) is not None:
        messages = [messages[0], *messages[-_LAST:]]
    return Held(messages, request.get("tools") or () if in_thread else ())
