"""The formats, by the names that a user gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum

from slipstream.datasets.imports import langfuse, openai_chat, openai_preference, traces
from slipstream.datasets.imports.conversation import Conversation, Options, Refused, Skipped
from slipstream.datasets.imports.files import RecordFile

Reader = Callable[[Sequence[RecordFile], Options], Iterator[Conversation | Refused | Skipped]]


class Format(StrEnum):
    """A format of files that can be imported."""

    OPENAI_CHAT = "openai-chat"
    OPENAI_PREFERENCE = "openai-preference"
    LANGFUSE = "langfuse"
    PHOENIX = "phoenix"
    OTEL = "otel"


READERS: Mapping[Format, Reader] = {
    Format.OPENAI_CHAT: openai_chat.read,
    Format.OPENAI_PREFERENCE: openai_preference.read,
    Format.LANGFUSE: langfuse.read,
    Format.PHOENIX: traces.read,
    Format.OTEL: traces.read,
}
"""Phoenix and OpenTelemetry have one reader: each span says by whose conventions it is."""
