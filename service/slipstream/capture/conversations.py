"""Which task and session a call belongs to, with no help from the agent.

A chat completion request carries the whole conversation. So the messages of a call, followed by its answer, are a
state that the next call of the same conversation starts with. States are hashed message by message, each hash over
the one before (a hash chain, as in a Merkle list), which makes every prefix of a request one lookup.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from slipstream.capture.completion import CapturedCall
from slipstream.capture.messages import canonical
from slipstream.trajectory import Message, answer_message, message_tool_calls


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call belongs."""

    session_id: str
    task_id: str


@dataclass(slots=True, eq=False)
class _End:
    """The end of one call: a conversation that its next call may continue."""

    state: bytes
    place: Place
    claimed: bool = False


@dataclass(slots=True)
class _Ends:
    """The ends of calls that reached the same state: users who said and heard the same."""

    unclaimed: list[_End] = field(default_factory=list)
    remembered: int = 0


class Conversations:
    """The conversations under way, in memory, for one reader at a time.

    Each end is claimed by one call, the oldest first. So users with the same history stay apart, and a branch (a
    conversation continued twice from the same point) becomes a session of its own: from the messages alone a branch
    and another user look the same, and one conversation seen as two costs less than two users seen as one.

    Args:
        limit: ends of calls remembered, and tasks named by header; the oldest go first. An end takes about 500
            bytes.
        new_id: makes an id for a session or a task.
    """

    def __init__(self, limit: int, new_id: Callable[[], str] = lambda: uuid.uuid4().hex) -> None:
        self._limit = limit
        self._new_id = new_id
        self._by_age: deque[_End] = deque()
        self._by_state: dict[bytes, _Ends] = {}
        self._sessions: OrderedDict[str, str] = OrderedDict()
        """The session of each task that was named by header."""

    def place(self, call: CapturedCall) -> Place:
        """Decide the call's session and task, and remember where it ended. Linear in the request's length.

        Headers win. A named session is a chain of its own. A named task stays in the session that it first had,
        unless the header names another one.
        """
        messages: Sequence[Message] = call.request["messages"]
        session_id, task_id = call.headers.session_id, call.headers.task_id
        states = list(_states(_seed(call.principal, session_id), [*messages, answer_message(call.answer)]))

        found, rest = self._claim(states, messages)
        if session_id is None and task_id is not None:
            session_id = self._sessions.get(task_id)
        if session_id is None:
            session_id = found.session_id if found else self._new_id()
        if task_id is None:
            goes_on = found is not None and not any(message.get("role") == "user" for message in rest)
            task_id = found.task_id if found and goes_on else self._new_id()
        else:
            self._sessions[task_id] = session_id
            self._sessions.move_to_end(task_id)
            if len(self._sessions) > self._limit:
                self._sessions.popitem(last=False)

        place = Place(session_id, task_id)
        self._remember(_End(states[-1], place))
        return place

    def _claim(self, states: Sequence[bytes], messages: Sequence[Message]) -> tuple[Place | None, Sequence[Message]]:
        """The place whose end is the longest proper prefix of the messages, and the messages after that prefix.

        Where all ends of that prefix are claimed, a shorter one is not tried: it would be another user's.
        """
        for length in range(len(messages) - 1, 0, -1):
            ends = self._by_state.get(states[length - 1])
            if ends is None:
                continue
            if not ends.unclaimed:
                break
            end = ends.unclaimed.pop(0)
            end.claimed = True
            return end.place, messages[length:]
        return None, messages

    def _remember(self, end: _End) -> None:
        ends = self._by_state.setdefault(end.state, _Ends())
        ends.unclaimed.append(end)
        ends.remembered += 1
        self._by_age.append(end)
        if len(self._by_age) > self._limit:
            self._forget(self._by_age.popleft())

    def _forget(self, oldest: _End) -> None:
        ends = self._by_state[oldest.state]
        ends.remembered -= 1
        if not oldest.claimed:
            ends.unclaimed.pop(0)  # both are by age, so it is the first in this one too
        if not ends.remembered:
            del self._by_state[oldest.state]


def completes(call: CapturedCall) -> bool:
    """Whether the answer calls no tool, so that its task is complete."""
    message = answer_message(call.answer)
    return not message_tool_calls(message) and not message.get("function_call")


def _seed(principal: bytes, session_id: str | None) -> bytes:
    return hashlib.blake2b(principal + (session_id or "").encode(), digest_size=16).digest()


def _states(state: bytes, messages: Sequence[Message]) -> Iterator[bytes]:
    """The state after each message."""
    for message in messages:
        state = hashlib.blake2b(state + canonical(message), digest_size=16).digest()
        yield state
