"""Results of an agent that are streams: what makes its calls is still to be read, so the agent has not ended.

Objects are told by `type` alone, and their attributes by what stands in their `__dict__`: `isinstance` asks for
`__class__`, by which a lazy object (Django's `SimpleLazyObject`) is evaluated.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Awaitable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from io import IOBase
from types import AsyncGeneratorType, GeneratorType, GetSetDescriptorType
from typing import Any

_ENTERED_LATER = ("Stream", "ResponseContextManager")
"""Parts of the names of managers that the SDKs' `stream()` and `with_streaming_response` return."""


def has_yet_to_run(output: Any) -> bool:
    """Return True for an awaitable or a stream: the agent has not ended. Its calls are made while this is read.

    Streams are also the managers that the SDKs' `stream()` and `with_streaming_response` return, which are still to be
    entered; what holds a generator that has not ended, such as a web framework's response; a response of httpx that is
    still open, and what holds one, or an SDK's stream or raw response over one; and results of agent frameworks that
    say that they are not complete (the OpenAI Agents SDK's `RunResultStreaming`). No code of the object's own runs.
    """
    kind = type(output)
    if issubclass(kind, IOBase):  # an open file can be iterated over, and makes no calls
        return False
    if issubclass(kind, (Awaitable, Iterator, AsyncIterable)):
        return True
    return _is_manager(kind) or _goes_on(output) or any(map(_goes_on, _parts(output))) or _says_so(output)


def _goes_on(part: Any) -> bool:
    kind = type(part)
    if kind is GeneratorType:
        return part.gi_frame is not None
    if kind is AsyncGeneratorType:
        return part.ag_frame is not None
    return _is_open(part) or any(map(_is_open, _attributes(part).values()))


def _is_manager(kind: type) -> bool:
    """By its name too: a picture or an archive can be entered, and makes no calls."""
    enters = issubclass(kind, (AbstractContextManager, AbstractAsyncContextManager))
    return enters and any(name in kind.__name__ for name in _ENTERED_LATER)


def _is_open(part: Any) -> bool:
    """Return True for a response of httpx whose body has not been read to its end."""
    return hasattr(type(part), "iter_raw") and _attributes(part).get("is_closed") is False


def _parts(output: Any) -> Iterable[Any]:
    """Return what the object holds: its attributes, or the members of a plain collection."""
    kind = type(output)
    if issubclass(kind, list):
        return list.__iter__(output)
    if issubclass(kind, tuple):
        return tuple.__iter__(output)
    if issubclass(kind, dict):
        return dict.values(output)
    return _attributes(output).values()


def _attributes(output: Any) -> dict[str, Any]:
    for base in type(output).__mro__:
        if "__dict__" in vars(base):
            own = vars(base)["__dict__"]  # a proxy has a property here
            return own.__get__(output) if type(own) is GetSetDescriptorType else {}
    return {}


def _says_so(output: Any) -> bool:
    if inspect.getattr_static(output, "is_complete", None) is not False:
        return False
    return any(name.startswith("stream") for name in dir(type(output)))
