"""Idempotency keys: the second call of a key within a task returns the first one's result, and does not run."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

MAX_KEYS = 10_000
"""Keys of the whole process that are remembered, the newest ones: results of writes are small, but stay in memory."""

_AGAIN: Final = object()
"""In place of a result: the first call raised, so that another one may run."""

Key = tuple[str, str, str]
"""The tool, the task, and the text that the key function gave."""


@dataclass(eq=False)
class Entry:
    """The first call of a key, while it runs and once it has returned.

    Attributes:
        caller: thread and asyncio task that run it; None once it has returned.
    """

    caller: tuple[int, object] | None
    result: Future[Any] = field(default_factory=Future)


class FirstResults:
    """Results of first calls by key, of all threads and event loops of this process.

    A key is remembered once its call has returned. After a call that raised or was cancelled, the next call of the key
    runs. Calls that come while the first one runs wait for it.

    Args:
        limit: keys that are remembered; the oldest ones are forgotten. Calls that still run are always known.
    """

    def __init__(self, limit: int = MAX_KEYS) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def once(self, key: Key, work: Callable[[], Any], kept: Callable[[Any], bool]) -> Any:
        """Return the result of the first call of this key, which may be this one.

        Args:
            work: the call.
            kept: returns False for a result that only those share who wait for it at the moment.

        Raises:
            RuntimeError: the call with this key makes another one with it, and would wait for itself.
        """
        while True:
            entry, is_first = self._claim(key, None)
            if not is_first:
                if (result := entry.result.result()) is not _AGAIN:
                    return _copied(result)
                continue
            result = _AGAIN
            try:
                result = work()
            finally:
                self._end(key, entry, result, kept)
            return result

    async def async_once(self, key: Key, work: Callable[[], Awaitable[Any]], kept: Callable[[Any], bool]) -> Any:
        """The asynchronous twin of `once`."""
        while True:
            entry, is_first = self._claim(key, asyncio.current_task())
            if not is_first:
                if (result := await asyncio.wrap_future(entry.result)) is not _AGAIN:
                    return _copied(result)
                continue
            result = _AGAIN
            try:
                result = await work()
            finally:
                self._end(key, entry, result, kept)
            return result

    def _claim(self, key: Key, task: object) -> tuple[Entry, bool]:
        caller = threading.get_ident(), task
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = Entry(caller)
                entry.result.set_running_or_notify_cancel()  # one who waits for it and is cancelled must not cancel it
                self._forget()
                return entry, True
            if entry.caller == caller and not entry.result.done():
                raise RuntimeError(f"idempotency_key: a call of {key[0]} calls it again with the same key")
            return entry, False

    def _end(self, key: Key, entry: Entry, result: Any, kept: Callable[[Any], bool]) -> None:
        shared = _AGAIN
        try:
            if result is not _AGAIN:
                shared = _copied(result)
        finally:  # whatever interrupts it, those who wait go on
            is_kept = shared is not _AGAIN and kept(result)
            with self._lock:
                if not is_kept:
                    self._entries.pop(key, None)
                elif self._entries.get(key) is entry:  # not in a child of the process
                    self._entries[key] = _returned(shared)
            entry.result.set_result(shared)

    def _forget(self) -> None:
        excess = len(self._entries) - self._limit
        if excess > 0:
            ended = (key for key, entry in self._entries.items() if entry.result.done())
            for key in [key for key, _ in zip(ended, range(excess), strict=False)]:
                del self._entries[key]

    def _forked(self) -> None:
        """In a child of the process: the calls that ran stayed with the parent, and so did who holds the lock."""
        self._lock = threading.Lock()
        self._entries = OrderedDict((key, entry) for key, entry in self._entries.items() if entry.result.done())


def _returned(result: Any) -> Entry:
    """An entry that holds nothing but the result: the first one's future has the event loops of those who waited."""
    entry = Entry(None)
    entry.result.set_result(result)
    return entry


def _copied(result: Any) -> Any:
    """A copy, so that no caller sees what another one does to its result; what cannot be copied, they share."""
    try:
        return deepcopy(result)
    except Exception:  # noqa: BLE001 - whatever cannot be copied
        return result


first_results = FirstResults()
"""Those of the program."""
