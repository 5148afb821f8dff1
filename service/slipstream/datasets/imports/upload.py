"""Conversations sent to a sidecar in requests of bounded size: `POST /imports`.

Only the training side of a sidecar writes to its store, so that a running one need not stop, its redaction and limits
hold, and the same command works on SQLite and on PostgreSQL. A request that failed is sent again: nothing is stored
twice.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx

from slipstream.datasets.imports.conversation import (
    Conversation,
    ImportedCall,
    ImportedTask,
    Refused,
    Score,
    Skipped,
)
from slipstream.datasets.imports.judgements import chosen
from slipstream.jsontext import to_json
from slipstream.store.lengths import ID_LENGTH
from slipstream.terminal.sidecar_http import NotTaken, SidecarAway, ask

_CHUNK_BYTES = 256 * 1024
"""Bytes of conversations in a request, unless one alone is longer: a quarter of what a sidecar takes by default."""

_CHUNK_CALLS = 200
"""Calls in a request, unless one conversation has more: they are stored in one transaction, with their feedback, for
which other writes wait."""

_TRIES = 6
_PAUSE = 2.0
"""Seconds before a request is sent again to a sidecar that is away, or out of memory for bodies; then twice as many."""

_NAME = 256
_COMMENT = 10_000
"""Characters of an id, and of a comment, that a sidecar takes."""


@dataclass(frozen=True, slots=True)
class Choices:
    """Choices of the user about what is stored.

    Attributes:
        source: name of the format.
        labels: of the imported tasks, beside `imported` and `imported:SOURCE`.
        select: the selection strategies decide about them.
        score: name of the judgements that become feedback; None for those of an answer that has one name only.
        score_range: of their values.
    """

    source: str
    labels: Sequence[str] = ()
    select: bool = False
    score: str | None = None
    score_range: tuple[float, float] = (0.0, 1.0)


@dataclass
class Outcome:
    """Result of an import.

    Attributes:
        conversations: by what became of them: imported, known, erased, refused.
        calls, feedback: stored now.
        skipped: records that are no calls of a model.
        left_out: judgements that were not stored.
        names: of judgements on answers that have several, none of which was chosen.
    """

    conversations: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    feedback: int = 0
    skipped: int = 0
    left_out: int = 0
    names: set[str] = field(default_factory=set)

    @property
    def whole(self) -> bool:
        """Return whether nothing was refused."""
        return not self.conversations["refused"]


def upload(
    read: Iterable[Conversation | Refused | Skipped],
    choices: Choices,
    client: httpx.Client,
    refused: Callable[[Refused], None],
    progress: Callable[[Outcome], None],
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Send conversations to a sidecar.

    Args:
        refused: is told of each that is refused, and of judgements that are left out.
        progress: is told after each request.

    Raises:
        SidecarAway: the sidecar went away, and did not come back within a minute. What was sent is stored.
        SlipstreamError: it does not take the key, or a file cannot be read.
    """
    sending = _Sending(choices, client, refused, progress, sleep)
    for one in read:
        if isinstance(one, Skipped):
            sending.outcome.skipped += one.count
        elif isinstance(one, Refused):
            sending.refuse(one)
        else:
            sending.add(one)
    sending.flush()
    return sending.outcome


class _Sending:
    def __init__(
        self,
        choices: Choices,
        client: httpx.Client,
        refused: Callable[[Refused], None],
        progress: Callable[[Outcome], None],
        sleep: Callable[[float], None],
    ) -> None:
        self._choices = choices
        self._client = client
        self._refused = refused
        self._progress = progress
        self._sleep = sleep
        self._waiting: list[tuple[Conversation, dict[str, Any]]] = []
        self._bytes = self._calls = 0
        self.outcome = Outcome()

    def refuse(self, one: Refused) -> None:
        if one.left_out:
            self.outcome.left_out += 1
        else:
            self.outcome.conversations["refused"] += 1
        self._refused(one)

    def add(self, one: Conversation) -> None:
        body = self._body(one)
        size, calls = len(to_json(body)), sum(len(task.calls) for task in one.tasks)
        if self._waiting and (self._bytes + size > _CHUNK_BYTES or self._calls + calls > _CHUNK_CALLS):
            self.flush()
        self._waiting.append((one, body))
        self._bytes += size
        self._calls += calls

    def flush(self) -> None:
        waiting, self._waiting, self._bytes, self._calls = self._waiting, [], 0, 0
        if waiting:
            self._send(waiting)
            self._progress(self.outcome)

    def _send(self, several: Sequence[tuple[Conversation, dict[str, Any]]]) -> None:
        try:
            results = self._asked([body for _, body in several])
        except NotTaken as error:
            if len(several) > 1:  # one of them is the cause
                for alone in several:
                    self._send([alone])
                return
            self.refuse(Refused(several[0][0].place, "", f"the sidecar does not take it: {error}"))
            return
        for (one, _), result in zip(several, results, strict=True):
            if result["state"] == "refused":
                self.refuse(Refused(_place(one, result["field"]), "", result["reason"]))
                continue
            self.outcome.conversations[result["state"]] += 1
            self.outcome.calls += result["calls"]
            self.outcome.feedback += result["feedback"]

    def _asked(self, conversations: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        choices = self._choices
        body = {
            "source": choices.source,
            "labels": list(choices.labels),
            "select": choices.select,
            "conversations": conversations,
        }
        pause = _PAUSE
        for tried in range(1, _TRIES + 1):
            try:
                found = ask(self._client, "/imports", roles="admin", field="results", body=body)
                results: list[dict[str, Any]] = found["results"]
                return results
            except SidecarAway:
                if tried == _TRIES:
                    raise
                self._sleep(pause)
                pause *= 2
        raise AssertionError("the last try returns or raises")

    def _body(self, one: Conversation) -> dict[str, Any]:
        times = [call.at for task in one.tasks for call in task.calls if call.at is not None]
        body: dict[str, Any] = {"id": _short(one.name), "tasks": [], "at": max(times, default=None)}
        if one.session is not None:
            body["session_id"] = _session_id(one.session)
        before: list[Any] = []
        for task in one.tasks:
            calls = []
            for call in task.calls:
                calls.append(self._call(call, task, before))
                before = [*call.request["messages"], call.answer]
            body["tasks"].append({"id": _short(task.name), "metadata": {"import": _origin(one, task)}, "calls": calls})
        return body

    def _call(self, call: ImportedCall, task: ImportedTask, before: Sequence[Any]) -> dict[str, Any]:
        """Return a call without the messages that those before it have said already."""
        messages = call.request["messages"]
        goes_on = bool(before) and len(messages) > len(before) and list(messages[: len(before)]) == list(before)
        body: dict[str, Any] = {
            "id": _short(call.name),
            "request": {**call.request, "messages": messages[len(before) :] if goes_on else messages},
            "answer": call.answer,
            "goes_on": goes_on,
            "finish_reason": call.finish_reason,
            "usage": call.usage,
            "latency": call.latency,
        }
        judged = [*call.scores, *(task.scores if call is task.calls[-1] else ())]
        if (feedback := self._feedback(judged, call)) is not None:
            body["feedback"] = feedback
        return body

    def _feedback(self, judged: Sequence[Score], call: ImportedCall) -> dict[str, Any] | None:
        score = chosen(judged, self._choices.score)
        if score is None:
            if self._choices.score is None and judged:
                self.outcome.left_out += len(judged)
                self.outcome.names.update(each.name for each in judged)
            return None
        said: dict[str, Any] = {"name": score.name[:128]}
        if score.comment:
            said["comment"] = score.comment[:_COMMENT]
        if score.thumbs is not None:
            return {**said, "thumbs": score.thumbs}
        low, high = self._choices.score_range
        assert score.value is not None, "a score is a thumb or a number"
        if not low <= score.value <= high:
            reason = f"expected a score from {low:g} to {high:g} (--score-range), found {score.value:g}"
            self.refuse(Refused(call.place, score.name, reason, left_out=True))
            return None
        return {**said, "score": (score.value - low) / (high - low)}


def _place(one: Conversation, field_: str) -> Any:
    """Return the place of a call that a sidecar names as `tasks[0].calls[2]`."""
    numbers = [int(part.partition("]")[0]) for part in field_.split("[")[1:]]
    return one.tasks[numbers[0]].calls[numbers[1]].place


def _origin(one: Conversation, task: ImportedTask) -> dict[str, Any]:
    """Return what a task's metadata say of where it came from."""
    first = task.calls[0]
    origin: dict[str, Any] = {"file": first.place.file, "line": first.place.line}
    if task.name or one.name:
        origin["id"] = task.name or one.name
    if first.at is not None:
        origin["at"] = datetime.fromtimestamp(first.at, UTC).isoformat()
    if one.session is not None and one.session != _session_id(one.session):
        origin["session"] = one.session
    return origin


def _session_id(name: str) -> str:
    """Return the id under which a session is stored: its own, where the store can hold that."""
    return name if len(name) <= ID_LENGTH and name.isprintable() and name == name.strip() else _hashed(name)


def _short(name: str) -> str:
    return name if len(name) <= _NAME else _hashed(name)


def _hashed(name: str) -> str:
    return f"import-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
