"""Files for supervised fine-tuning at OpenAI: `{"messages": [...], "tools": [...]}` a line.

A line is a session. Each assistant message is an answer, unless its `weight` is 0, and each user message begins a task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from slipstream.datasets.imports import chat
from slipstream.datasets.imports.conversation import (
    Conversation,
    ImportedCall,
    ImportedTask,
    Message,
    Options,
    Place,
    Refused,
    Skipped,
    Unfit,
    at_path,
    found,
    session_name,
)
from slipstream.datasets.imports.files import RecordFile

_FIELDS = ("parallel_tool_calls", "functions", "model", "response_format")
"""Fields of a line that belong to each request."""


def read(files: Sequence[RecordFile], options: Options) -> Iterator[Conversation | Refused | Skipped]:
    """Yield the conversation of each line.

    Raises:
        ImportFileError: a file cannot be read.
    """
    return each_line(files, options, _conversation)


def each_line(
    files: Sequence[RecordFile],
    options: Options,
    conversation: Callable[[Mapping[str, Any], Place, Options], Conversation],
) -> Iterator[Conversation | Refused]:
    """Yield the conversation of each line, or why it is refused.

    Args:
        conversation: makes one of a line; raises Unfit.

    Raises:
        ImportFileError: a file cannot be read.
    """
    for file in files:
        for extent in file.extents():
            place = Place(file.name, extent.line)
            try:
                yield conversation(file.read(extent), place, options)
            except Unfit as error:
                yield Refused(place, error.field, error.reason)


def _conversation(line: Mapping[str, Any], place: Place, options: Options) -> Conversation:
    given = line.get("messages")
    if not isinstance(given, list) or not given:
        raise Unfit("messages", f"expected a list of messages, found {found(given)}")
    fields = request_fields(line, "")
    asked: list[Message] = []
    tasks: list[list[ImportedCall]] = []
    for number, one in enumerate(given):
        at = f"messages[{number}]"
        message = chat.message(one, at)
        if message["role"] == "user" or not tasks:
            tasks.append([])
        weight = one.get("weight", 1)
        if weight not in (0, 1) or isinstance(weight, bool):
            raise Unfit(f"{at}.weight", f"expected 0 or 1, found {found(weight)}")
        if message["role"] == "assistant" and weight:
            if not asked:
                raise Unfit(at, "expected a message before the first answer, found none")
            answer = chat.answer(one, at)
            tasks[-1].append(ImportedCall("", {**fields, "messages": list(asked)}, answer, place))
        asked.append(message)
    calls = [ImportedTask("", task) for task in tasks if task]
    if not calls:
        raise Unfit("messages", "expected an answer of the assistant with a weight other than 0, found none")
    return Conversation("", calls, place, session_of(line, options))


def request_fields(line: Mapping[str, Any], at: str) -> dict[str, Any]:
    """Return the fields of a request beside its messages.

    Args:
        at: path of the object that has them, with a dot behind it; "" for the line.

    Raises:
        Unfit: the tools are none.
    """
    fields = {name: line[name] for name in _FIELDS if line.get(name) is not None}
    if tools := chat.tools(line.get("tools"), f"{at}tools"):
        fields["tools"] = tools
    return fields


def session_of(line: Mapping[str, Any], options: Options) -> str | None:
    """Return the session that a line names in the field that the user said; None without one.

    Raises:
        Unfit: the field holds no id.
    """
    field = options.session_field
    return None if field is None else session_name(at_path(line, field), field)
