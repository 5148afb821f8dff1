"""Results of an agent that are streams: what makes its calls is still to be read, so the agent has not ended."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from io import IOBase
from typing import Any


def has_yet_to_run(output: Any) -> bool:
    """Return True for an awaitable or a stream: the agent has not ended. Its calls are made while this is read.

    Streams are also the managers that the SDKs' `stream()` returns, which are still to be entered; what holds a
    generator that has not ended, such as a web framework's response; and results of agent frameworks that say that they
    are not complete (the OpenAI Agents SDK's `RunResultStreaming`). No code of the object's own runs.
    """
    if isinstance(output, IOBase):  # an open file can be iterated over, and makes no calls
        return False
    if inspect.isawaitable(output) or isinstance(output, (Iterator, AsyncIterable)):
        return True
    return _is_manager(output) or any(map(_goes_on, _parts(output))) or _says_so(output)


def _is_manager(output: Any) -> bool:
    """By its name too: a picture or an archive can be entered, and makes no calls."""
    enters = isinstance(output, (AbstractContextManager, AbstractAsyncContextManager))
    return enters and "Stream" in type(output).__name__


def _parts(output: Any) -> Iterable[Any]:
    """Return what the object holds: its attributes, or the members of a plain collection."""
    if isinstance(output, (list, tuple)):
        return output
    if isinstance(output, dict):
        return output.values()
    try:
        attributes: dict[str, Any] = object.__getattribute__(output, "__dict__")
    except AttributeError:
        return ()
    return attributes.values()


def _goes_on(part: Any) -> bool:
    if inspect.isgenerator(part):
        return part.gi_frame is not None
    return inspect.isasyncgen(part) and part.ag_frame is not None


def _says_so(output: Any) -> bool:
    if inspect.getattr_static(output, "is_complete", None) is not False:
        return False
    return any(name.startswith("stream") for name in dir(type(output)))
