"""The end of an answer whose caller has left: how it is recognised, and read so that the connection can be used again.

Most SDKs close the connection as soon as they have read `data: [DONE]`, and many servers send the last chunk of their
framing some milliseconds later (vLLM does). Such an answer is whole. An answer that is not is another matter: leaving
it cancels the call.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from slipstream.http.connection import Connection
from slipstream.http.errors import UpstreamError

TAIL = 4096
"""Bytes of the end of a body in which its last events are looked for."""

_NAMED = b"event:"
_LONGEST_NAME = 64
"""Bytes of the line that names an event."""

_MOMENT = 1.0
"""Seconds that production has to end the answer, ..."""

_MOST = 64 * 1024
"""... and bytes."""

_TERMINAL = re.compile(
    rb"(?:^|[\r\n])"
    rb"(?:data: ?\[DONE\]|event: ?(?:message_stop|response\.(?:completed|failed|incomplete))[\r\n]+data:[^\r\n]*[\r\n])"
)
"""The last event of chat completions and completions, of Anthropic's messages, and of OpenAI's responses. A line of an
event stream begins nowhere else than after a line break, which JSON's strings cannot hold: no text looks like it."""

_FINISHED = re.compile(rb'"finish_reason"\s*:\s*"')
"""A choice that has finished. A quotation mark within a JSON string is escaped, so this is never a model's text."""


def tail_of(tail: bytes, pieces: list[bytes]) -> bytes:
    """The end of a body that has grown: its last `TAIL` bytes.

    In a stream of named events the last one's name comes before them, however long that event is: the last event of
    OpenAI's responses holds the whole answer.
    """
    tail += pieces[0] if len(pieces) == 1 else b"".join(pieces)
    if len(tail) <= TAIL:
        return tail
    if not tail.startswith(_NAMED):
        return tail[-TAIL:]
    tail = tail[tail.rfind(b"\n" + _NAMED) + 1 :]
    if len(tail) <= TAIL:
        return tail
    return tail[: tail.find(b"\n") + 1][:_LONGEST_NAME] + b"data:" + tail[-TAIL:]


def has_ended(tail: bytes) -> bool:
    """Return whether the end of a body holds the last event of an event stream."""
    return _TERMINAL.search(tail) is not None


def has_finished(tail: bytes) -> bool:
    """Return whether the end of an event stream's body holds a choice with its finish reason."""
    return _FINISHED.search(tail) is not None


class Remainder:
    """Reads what is left of an answer that nobody waits for any more, for a moment.

    When it ends in time, its connection is kept for the next exchange, else closed.

    Args:
        connection: in the middle of its answer.
        over: called once, when it is kept or closed.
    """

    def __init__(self, connection: Connection, over: Callable[[Remainder], None]) -> None:
        self._connection = connection
        self._over = over
        self._left = _MOST
        self._timer = asyncio.get_running_loop().call_later(_MOMENT, self.close)
        connection.hand_over_to(self)

    def close(self) -> None:
        """Give the connection up."""
        self._connection.close()
        self._end()

    # The connection says

    def answer(self, starts: bool, pieces: list[bytes], ends: bool) -> None:
        self._left -= sum(map(len, pieces))
        if ends:
            self._end()
        elif self._left < 0:
            self.close()

    def failed(self, error: UpstreamError) -> None:
        self._end()

    def may_send(self, may: bool) -> None:
        """The request was sent before."""

    def _end(self) -> None:
        self._timer.cancel()
        self._over(self)
