"""Assignment of calls to tasks and sessions, without help from the agent.

A chat completion request carries the whole conversation. So the messages of a call, followed by its answer, are a
state that the next call of the same conversation starts with. States are hashed message by message, each hash over
the one before (a hash chain, as in a Merkle list), which makes every prefix of a request one lookup.

What counts of a message is its meaning (`messages.py`). A state is named three times: by all of it, without what some
frameworks leave out of an answer, and without the ids of tool calls too. The first name that is known decides, so
that a framework that changes those is followed, and where none does they tell users apart who say the same.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from uuid_utils import uuid7
from xxhash import xxh3_128_digest

from slipstream.capture.completion import CapturedCall
from slipstream.capture.messages import meaning
from slipstream.capture.place import Earlier, Place
from slipstream.dialects.form import Dialect
from slipstream.tenants import qualified
from slipstream.trajectory import Message, answer_message, message_tool_calls


@dataclass(slots=True, eq=False)
class _End:
    """The end of one call: a conversation that its next call may continue."""

    names: _Names
    place: Place
    claimed: bool = False


@dataclass(slots=True)
class _Ends:
    """The ends of calls that reached a state of one name, oldest first: users who said and heard the same.

    Attributes:
        waiting: those that may be unclaimed. One that was claimed by another name of its state leaves it when it comes
            first, or is forgotten.
    """

    waiting: list[_End] = field(default_factory=list)
    remembered: int = 0

    def claim(self) -> _End | None:
        while self.waiting:
            end = self.waiting.pop(0)
            if not end.claimed:
                end.claimed = True
                return end
        return None


_Names = tuple[bytes, ...]
"""Names of one state, each once, the most exact first."""


class Conversations:
    """The conversations under way, in memory, for one reader at a time.

    Each end is claimed by one call, the oldest first. So users with the same history stay apart, and a branch (a
    conversation continued twice from the same point) becomes a session of its own: from the messages alone a branch
    and another user look the same, and one conversation seen as two costs less than two users seen as one.

    Args:
        limit: ends of calls remembered, and tasks named by header; the oldest go first. An end takes about 500
            bytes, with tool calls 800.
        new_id: makes an id for a session or a task. Those of version 7 grow with time, so that the store's indexes of
            them grow at one end, and a new one costs the same however many there are.
    """

    def __init__(self, limit: int, new_id: Callable[[], str] = lambda: uuid7().hex) -> None:
        self._limit = limit
        self._new_id = new_id
        self._by_age: deque[_End] = deque()
        self._by_name: dict[bytes, _Ends] = {}
        self._sessions: OrderedDict[str, str] = OrderedDict()
        """The session of each task that was named by header."""

    def place(self, call: CapturedCall, earlier: Earlier | None = None) -> Place:
        """Decide the call's session and task, and remember where it ended. Linear in the request's length.

        Headers win. A named session is a chain of its own. A named task stays in the session that it first had,
        unless the header names another one.

        Args:
            earlier: the conversation that the call says it goes on from.
        """
        messages: Sequence[Message] = call.request["messages"]
        session_id, task_id = call.session_id, call.task_id
        states = _states_of(call)

        found, rest = self._claim(states, messages)
        if found is None and earlier is not None:  # it was forgotten, or another sidecar captured it
            # One more than what is new where there are instructions: the answer before, which is no user's message.
            found, rest = earlier.place, messages[len(earlier.held.messages) :]
        if session_id is None and task_id is not None:
            session_id = self._sessions.get(task_id)
        if session_id is None:
            session_id = found.session_id if found else qualified(call.tenant, self._new_id())
        new_task = False
        if task_id is None:
            goes_on = found is not None and not _asks_anew(rest, call.dialect)
            new_task = not goes_on
            task_id = found.task_id if found and goes_on else qualified(call.tenant, self._new_id())
        else:
            self._sessions[task_id] = session_id
            self._sessions.move_to_end(task_id)
            if len(self._sessions) > self._limit:
                self._sessions.popitem(last=False)

        place = Place(session_id, task_id, new_task)
        self._remember(_End(states[-1], place))
        return place

    def again(self, call: CapturedCall, before: Place) -> Place:
        """Put a call where an earlier attempt of it is, and remember where it ended."""
        place = replace(before, new_task=False)
        self._remember(_End(_states_of(call)[-1], place))
        return place

    def _claim(self, states: Sequence[_Names], messages: Sequence[Message]) -> tuple[Place | None, Sequence[Message]]:
        """The place whose end is the longest proper prefix of the messages, and the messages after that prefix.

        Where all ends of that prefix are claimed, a shorter one is not tried: it would be another user's.
        """
        for length in range(len(messages) - 1, 0, -1):
            known = next((ends for name in states[length - 1] if (ends := self._by_name.get(name))), None)
            if known is not None:
                end = known.claim()
                return (end.place, messages[length:]) if end else (None, messages)
        return None, messages

    def _remember(self, end: _End) -> None:
        for name in end.names:
            ends = self._by_name.setdefault(name, _Ends())
            ends.waiting.append(end)
            ends.remembered += 1
        self._by_age.append(end)
        if len(self._by_age) > self._limit:
            self._forget(self._by_age.popleft())

    def _forget(self, oldest: _End) -> None:
        for name in oldest.names:
            ends = self._by_name[name]
            ends.remembered -= 1
            if ends.waiting and ends.waiting[0] is oldest:  # both are by age, so it is the first in this one too
                ends.waiting.pop(0)
            if not ends.remembered:
                del self._by_name[name]


def _asks_anew(messages: Sequence[Message], dialect: Dialect) -> bool:
    """Return whether a user asks for something in the messages after an answer.

    In Anthropic's API a text beside the results of tools is no request of its own: it is in the same turn, and agents
    put their reminders there.
    """
    before = None
    for message in messages:
        role = message.get("role")
        if role == "user" and not (dialect is Dialect.MESSAGES and before == "tool"):
            return True
        before = role
    return False


def completes(call: CapturedCall) -> bool:
    """Return whether the answer calls no tool, so that its task is complete."""
    message = answer_message(call.answer)
    return not message_tool_calls(message) and not message.get("function_call")


_SEED = secrets.randbits(64)
"""Seed of hashes that live as long as this process; it is secret, so that nobody can construct two messages with equal
hashes."""


def _states_of(call: CapturedCall) -> list[_Names]:
    return _states(_start(call.principal, call.session_id), [*call.request["messages"], answer_message(call.answer)])


def _start(principal: bytes, session_id: str | None) -> bytes:
    return principal + (session_id or "").encode()


def _states(start: bytes, messages: Sequence[Message]) -> list[_Names]:
    """The state after each message."""
    states: list[_Names] = []
    state, ids, asides = start, b"", b""
    for message in messages:
        read = meaning(message)
        state = xxh3_128_digest(state + read.essence, _SEED)
        if read.ids:
            ids = xxh3_128_digest(ids + state + read.ids, _SEED)
        if read.aside:
            asides = xxh3_128_digest(asides + state + read.aside, _SEED)
        states.append(tuple(dict.fromkeys((state + ids + asides, state + ids, state))) if ids or asides else (state,))
    return states
