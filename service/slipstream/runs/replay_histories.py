"""Conversations of agent replays up to one of their answers, for calls that go on from there."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import NamedTuple

from slipstream.dialects.form import Held, messages_up_to
from slipstream.facade.translated import Before
from slipstream.jsontext import from_json
from slipstream.store import replay_calls
from slipstream.store.bodies import unpacked_text
from slipstream.store.database import Database

_MARK = b"[redacted:"
"""The begin of the mark that stands in the place of a text which a rule has found."""


_ROOM = 500
"""Bytes that an entry takes beside the call."""


class AsAsked(NamedTuple):
    """A call of a run as the policy and its agent know it, where what is stored of it differs.

    Attributes:
        request, completion: JSON in UTF-8.
        instructed: the first message of the request is instructions, which hold for this one call.
    """

    request: bytes
    completion: bytes
    instructed: bool = False


class _Entry(NamedTuple):
    """
    Attributes:
        call: None where it is stored as it was.
    """

    call: AsAsked | None
    added_at: float

    @property
    def size(self) -> int:
        return _ROOM + (0 if self.call is None else len(self.call.request) + len(self.call.completion))


class ReplayHistories:
    """The conversations of open runs, by the ids of the policy's answers.

    What is stored is redacted. Where the policy is asked what agents say as it is, such a call is therefore kept in
    memory as well, and never read from the store: the policy would be asked another conversation than its agent has.
    That a call is stored as it was is remembered too: its text may have the mark of a rule by itself.

    Args:
        as_asked: the policy is asked without redaction.
        hooked: functions of the user's redact too, which may leave any mark.
        limit: bytes in memory; the oldest calls go first.
    """

    def __init__(self, database: Database, *, as_asked: bool, hooked: bool, limit: int = 64 * 1024**2) -> None:
        self._database = database
        self._as_asked = as_asked
        self._hooked = hooked
        self._left = limit
        self._calls: OrderedDict[tuple[int, str], _Entry] = OrderedDict()
        self._of_run: dict[int, set[str]] = {}

    async def earlier(self, run_pk: int, msg_id: str) -> Before | None:
        """The conversation up to an answer of a run; None where there is none, or where only its redacted form is
        left."""
        entry = self._calls.get((run_pk, msg_id))
        if entry is not None and entry.call is not None:
            return await asyncio.to_thread(_before, entry.call)
        async with self._database.read() as session:
            made = await replay_calls.made_call(session, run_pk, msg_id)
        whole = entry is not None or not self._as_asked
        return None if made is None else await asyncio.to_thread(self._stored, made, whole=whole)

    def add(self, run_pk: int, msg_id: str, call: AsAsked | None, now: float) -> None:
        """Remember a call.

        Args:
            call: None where it is stored as it was.
        """
        if not self._as_asked:
            return
        self._drop(run_pk, msg_id)
        self._calls[run_pk, msg_id] = entry = _Entry(call, now)
        self._of_run.setdefault(run_pk, set()).add(msg_id)
        self._left -= entry.size
        while self._left < 0:
            self._drop(*next(iter(self._calls)))

    def forget(self, run_pk: int) -> None:
        """The run is over."""
        for msg_id in list(self._of_run.get(run_pk, ())):
            self._drop(run_pk, msg_id)

    def forget_before(self, time: float) -> None:
        """Runs of which the newest call is older are over, though they may have ended behind another sidecar."""
        if not self._calls or next(iter(self._calls.values())).added_at >= time:
            return  # nearly always
        newest: dict[int, float] = {}
        for (run_pk, _), entry in self._calls.items():
            newest[run_pk] = entry.added_at
        for run_pk, added_at in newest.items():
            if added_at < time:
                self.forget(run_pk)

    def _stored(self, made: replay_calls.MadeCall, *, whole: bool) -> Before | None:
        """
        Args:
            whole: what is stored is what was asked and answered, as far as that counts.
        """
        request, completion = made.request.text(), unpacked_text(made.answer)
        if not whole and (self._hooked or _MARK in request or _MARK in completion):
            return None
        return _before(AsAsked(request, completion, made.instructed))

    def _drop(self, run_pk: int, msg_id: str) -> None:
        entry = self._calls.pop((run_pk, msg_id), None)
        if entry is None:
            return
        self._left += entry.size
        self._of_run[run_pk].discard(msg_id)
        if not self._of_run[run_pk]:
            del self._of_run[run_pk]


def _before(call: AsAsked) -> Before:
    request, completion = from_json(call.request)[0], from_json(call.completion)[0]
    messages = messages_up_to(request, completion, instructed=call.instructed)
    return Before(Held(messages, request.get("tools") or ()), completion)
