"""The model calls of one run: which answers it got, whole and in the order in which it asked."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any


class RunFailed(Exception):
    """A run's calls cannot be trained on; the message says why."""


@dataclass
class Call:
    """One call. Its answer is whole once `msg_id` is there, unless it failed after that.

    `answer` is what was said in full, its body or its events, where that is kept.
    """

    msg_id: str | None = None
    error: str | None = None
    answer: list[dict[str, Any]] | None = None


class Calls:
    """Calls of one run, open until `close`. They come from several threads. With `keep`, `answers` has the answers."""

    def __init__(self, keep: bool = False) -> None:
        self._keep = keep
        self._calls: list[Call] = []
        self._closed = False
        self._lock = threading.Lock()

    def begin(self) -> Call | None:
        """The next call, or None: the run is over, and nobody may ask the model in its name."""
        with self._lock:
            if self._closed:
                return None
            self._calls.append(Call(answer=[] if self._keep else None))
            return self._calls[-1]

    @property
    def answers(self) -> list[list[dict[str, Any]]]:
        """Return the calls that were answered whole, in the order in which they began: the body, or the events."""
        with self._lock:
            return [call.answer for call in self._calls if call.answer is not None and call.msg_id is not None]

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> list[str]:
        """Ends the run; returns the ids of its answers in the order in which its calls began.

        Raises:
            RunFailed: there was no call, or one failed, or one has not ended.
        """
        with self._lock:
            self._closed = True
            calls = list(self._calls)
        if not calls:
            raise RunFailed("it made no call with the model that it was given")
        ids = []
        for number, call in enumerate(calls, start=1):
            if call.error is not None or call.msg_id is None:
                raise RunFailed(f"call {number} of {len(calls)}: {call.error or 'it has not ended'}")
            ids.append(call.msg_id)
        return ids


class Answer:
    """Reads an answer as it comes, whole or as server-sent events, to tell its id and whether it is whole."""

    def __init__(self, choices: int, kept: list[dict[str, Any]] | None = None) -> None:
        self.ended = False  # [DONE] has come
        self._kept = kept
        self._id: str | None = None
        self._finished: dict[int, str] = {}
        self._choices = choices

    def read(self, body: bytes) -> None:
        """A JSON body, or the data of one event. What cannot be read says nothing."""
        if body.strip() == b"[DONE]":
            self.ended = True
            return
        try:
            said: Any = json.loads(body)
        except ValueError:
            return
        if not isinstance(said, dict):
            return
        if self._kept is not None:
            self._kept.append(said)
        if isinstance(said.get("id"), str):
            self._id = self._id or said["id"]
        for choice in said.get("choices") or ():
            if reason := choice.get("finish_reason"):
                self._finished[choice.get("index", 0)] = reason

    @property
    def msg_id(self) -> str | None:
        """The id of a whole answer; None while, or because, something of it is missing."""
        whole = len(self._finished) >= self._choices and "abort" not in self._finished.values()
        return self._id if whole else None
