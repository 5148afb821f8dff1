"""Files for direct preference optimization at OpenAI: `{"input": ..., "preferred_output": [...],
"non_preferred_output": [...]}` a line.

A line is a session of one question that was answered twice: the preferred answer was liked, the other one disliked. So
both are answers with feedback, as users give it, and data sets of pairs and of single judgements can be made of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from slipstream.datasets.imports import chat
from slipstream.datasets.imports.conversation import (
    Conversation,
    ImportedCall,
    ImportedTask,
    Options,
    Place,
    Refused,
    Score,
    Skipped,
    Unfit,
    found,
)
from slipstream.datasets.imports.files import RecordFile
from slipstream.datasets.imports.openai_chat import each_line, request_fields, session_of

_SIDES: tuple[tuple[str, Literal["up", "down"]], ...] = (("preferred_output", "up"), ("non_preferred_output", "down"))


def read(files: Sequence[RecordFile], options: Options) -> Iterator[Conversation | Refused | Skipped]:
    """Yield the conversation of each line.

    Raises:
        ImportFileError: a file cannot be read.
    """
    return each_line(files, options, _conversation)


def _conversation(line: Mapping[str, Any], place: Place, options: Options) -> Conversation:
    asked = line.get("input")
    if not isinstance(asked, Mapping):
        raise Unfit("input", f"expected an object with messages, found {found(asked)}")
    request = {
        **request_fields(asked, "input."), "messages": chat.messages(asked.get("messages"), "input.messages"),
    }  # fmt: skip
    tasks = []
    for name, thumbs in _SIDES:
        output = line.get(name)
        if not isinstance(output, list) or len(output) != 1:
            raise Unfit(name, f"expected a list of one assistant message, found {found(output)}")
        call = ImportedCall(
            name, request, chat.answer(output, name), place, scores=[Score("preference", thumbs=thumbs)]
        )
        tasks.append(ImportedTask(name, [call]))
    return Conversation("", tasks, place, session_of(line, options))
