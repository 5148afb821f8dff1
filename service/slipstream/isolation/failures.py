"""Errors of work in a child process.

SlipstreamError
  ├── NotFinished     it took too long, needed too much memory, or its process ended
  └── Raised          its own code raised something
"""

from __future__ import annotations

import traceback
from typing import Self

from slipstream.errors import SlipstreamError


class NotFinished(SlipstreamError):
    """Work that did not come to its end; the message says why."""


class Raised(SlipstreamError):
    """An exception, as another process can tell of it.

    Attributes:
        kind: the name of its type.
        said: its message, which may quote content.
        frames: the lines of its traceback, without the message.
        place: equal for two exceptions of one type that come from the same lines of code.
    """

    def __init__(self, kind: str, said: str, frames: str, place: tuple[object, ...]) -> None:
        super().__init__(kind, said, frames, place)
        self.kind = kind
        self.said = said
        self.frames = frames
        self.place = place

    def __str__(self) -> str:
        return f"{self.kind}: {self.said}" if self.said else self.kind

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """The exception without its objects, which need not exist elsewhere."""
        lines = ((frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__))
        kind = type(error).__name__
        return cls(kind, str(error), "".join(traceback.format_tb(error.__traceback__)), (kind, *lines))
