"""Calls that stand in a file in any order, gathered into sessions and tasks.

Exports of traces have a record for each call, the newest first or as they ended. A first reading notes where each call
stands, which takes some 300 bytes of memory a call; a second one reads the calls of one session after the other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from slipstream.datasets.imports.conversation import (
    Conversation,
    ImportedCall,
    ImportedTask,
    Place,
    Refused,
    Score,
    Skipped,
    Unfit,
)
from slipstream.datasets.imports.files import Extent, RecordFile

_REMEMBERED = 4
"""Records that are kept after they were read: a batch of spans holds many calls of one session."""


class Origin(NamedTuple):
    """Place of a part of a record: the number of its file, its bytes, and its number within the record."""

    file: int
    extent: Extent
    part: int


class Mention(NamedTuple):
    """A call that stands somewhere.

    Attributes:
        task: id of its trace.
        name: its own id.
        at: when it began, Unix seconds.
    """

    task: str
    name: str
    at: float
    origin: Origin


@dataclass
class Noted:
    """Result of the first reading.

    Attributes:
        calls: of each task, by its id.
        sessions: of tasks that name one.
        scores: by the id of a call or of a task.
        attached: parts of records that belong to a call, by its id.
        skipped: records that are no calls.
    """

    calls: dict[str, list[Mention]] = field(default_factory=dict)
    sessions: dict[str, str] = field(default_factory=dict)
    scores: dict[str, list[Score]] = field(default_factory=dict)
    attached: dict[str, list[Origin]] = field(default_factory=dict)
    skipped: int = 0

    def add(self, mention: Mention) -> None:
        """Note a call."""
        self.calls.setdefault(mention.task, []).append(mention)


class CallFormat(Protocol):
    """A format whose records are calls, in any order."""

    def note(self, record: dict[str, Any], at: tuple[int, Extent], noted: Noted) -> None:
        """Note the calls of a record, and what belongs to others.

        Raises:
            Unfit: it is none of this format.
        """
        ...

    def call(self, record: dict[str, Any], mention: Mention, place: Place, attached: Sequence[Any]) -> ImportedCall:
        """Return a call that was noted.

        Args:
            attached: for each part that belongs to it, its record and its number there.

        Raises:
            Unfit: it cannot be imported.
        """
        ...


class _Records:
    """Records that are read again, the last ones kept."""

    def __init__(self, files: Sequence[RecordFile]) -> None:
        self._files = files
        self._kept: OrderedDict[tuple[int, int], dict[str, Any]] = OrderedDict()

    def read(self, origin: Origin) -> dict[str, Any]:
        key = origin.file, origin.extent.begin
        record = self._kept.pop(key, None) or self._files[origin.file].read(origin.extent)
        self._kept[key] = record
        if len(self._kept) > _REMEMBERED:
            self._kept.popitem(last=False)
        return record

    def place(self, origin: Origin) -> Place:
        return Place(self._files[origin.file].name, origin.extent.line)


def conversations(files: Sequence[RecordFile], format_: CallFormat) -> Iterator[Conversation | Refused | Skipped]:
    """Yield the conversations of files that are read together, in the order of their first calls.

    A record that cannot be read is refused alone, because nothing tells whose it is. A call that cannot be imported
    refuses its conversation.

    Raises:
        ImportFileError: a file cannot be read.
    """
    noted = Noted()
    for number, file in enumerate(files):
        for extent in file.extents():
            try:
                format_.note(file.read(extent), (number, extent), noted)
            except Unfit as error:
                yield Refused(Place(file.name, extent.line), error.field, error.reason)
    yield Skipped(noted.skipped)
    sessions: dict[tuple[str, str], list[str]] = {}
    for task in noted.calls:
        named = noted.sessions.get(task)
        sessions.setdefault(("trace", task) if named is None else ("session", named), []).append(task)
    records = _Records(files)
    for (kind, name), tasks in sessions.items():
        read = _tasks(tasks, noted, format_, records)
        if isinstance(read, Refused):
            yield read
        else:
            yield Conversation(name, read, read[0].calls[0].place, name if kind == "session" else None)


def _tasks(tasks: Sequence[str], noted: Noted, format_: CallFormat, records: _Records) -> list[ImportedTask] | Refused:
    read = []
    for task in sorted(tasks, key=lambda task: min(mention.at for mention in noted.calls[task])):
        calls = []
        mentions = {mention.name: mention for mention in noted.calls[task]}  # pages of an API may overlap
        for mention in sorted(mentions.values(), key=lambda mention: mention.at):
            place = records.place(mention.origin)
            attached = [(records.read(each), each.part) for each in noted.attached.get(mention.name, ())]
            try:
                call = format_.call(records.read(mention.origin), mention, place, attached)
            except Unfit as error:
                return Refused(place, error.field, error.reason)
            more = noted.scores.get(mention.name, ())
            calls.append(replace(call, scores=[*call.scores, *more]) if more else call)
        of_task = () if task in mentions else noted.scores.get(task, ())
        read.append(ImportedTask(task, calls, of_task))
    return read
