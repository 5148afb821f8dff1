"""Figures that a call shows of itself, whatever its dialect: the model, the answer's id, its end and its tokens.

Only these few fields are read of a body, by their types: no text that somebody wrote is made a value, and a field of
another type counts as missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin

import msgspec

from slipstream.dialects.events import events


class _Request(msgspec.Struct):
    model: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Details | None = None


class _Choice(msgspec.Struct):
    finish_reason: str | None = None


class _Answer(msgspec.Struct):
    """An answer of any dialect, or an event of its stream."""

    id: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    stop_reason: str | None = None
    status: str | None = None
    usage: _Usage | None = None


class _Delta(msgspec.Struct):
    stop_reason: str | None = None


class _Event(_Answer):
    """An event: a chunk of chat completions, or one of the other dialects' that has an answer within it."""

    response: _Answer | None = None
    message: _Answer | None = None
    delta: _Delta | str | None = None


_Kind = TypeVar("_Kind", bound=msgspec.Struct)

_DECODERS: Mapping[type[msgspec.Struct], msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (_Request, _Answer, _Event)
}
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode

_ENDED = ("completed", "incomplete", "failed", "cancelled")
"""The `status` of an answer of the Responses API that is over."""


@dataclass(slots=True)
class Figures:
    """Figures of one call; None where it does not say.

    Attributes:
        asked_model: of the request.
        finish_reasons: one for each choice; the `stop_reason` or the `status` in dialects that have one answer.
        cached_tokens: those of the input that the provider had in its cache.
    """

    asked_model: str | None = None
    model: str | None = None
    id: str | None = None
    finish_reasons: tuple[str, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None


def figures_of(request: bytes | None, answer: bytes | None, *, streamed: bool) -> Figures:
    """The figures of a call; takes any bodies, decoded.

    Args:
        streamed: the answer is an event stream.
    """
    found = Figures()
    asked = None if request is None else _read(_Request, request)
    if asked is not None:
        found.asked_model = asked.model
    for part in _parts(answer, streamed=streamed):
        _add(found, part)
    return found


def _parts(answer: bytes | None, *, streamed: bool) -> Iterator[_Answer]:
    if answer is None:
        return
    if not streamed:
        if (whole := _read(_Answer, answer)) is not None:
            yield whole
        return
    for _, data in events(answer + b"\n\n"):
        event = _read(_Event, data)
        if event is None:
            continue
        yield event
        for inner in (event.response, event.message):
            if inner is not None:
                yield inner
        if isinstance(event.delta, _Delta):
            yield _Answer(stop_reason=event.delta.stop_reason)


def _add(found: Figures, part: _Answer) -> None:
    """Take what this part of an answer says; the last word counts."""
    found.id = part.id or found.id
    found.model = part.model or found.model
    reasons = tuple(choice.finish_reason for choice in part.choices or () if choice.finish_reason)
    if reasons:
        found.finish_reasons += reasons
    elif part.stop_reason:
        found.finish_reasons = (part.stop_reason,)
    elif part.status in _ENDED:
        found.finish_reasons = (part.status,)
    usage = part.usage
    if usage is None:
        return
    details = usage.prompt_tokens_details or usage.input_tokens_details
    cached = usage.cache_read_input_tokens if details is None else details.cached_tokens
    found.input_tokens = _first(usage.prompt_tokens, usage.input_tokens, found.input_tokens)
    found.output_tokens = _first(usage.completion_tokens, usage.output_tokens, found.output_tokens)
    found.cached_tokens = _first(cached, found.cached_tokens)


def _first(*counts: int | None) -> int | None:
    return next((count for count in counts if count is not None), None)


def _read(kind: type[_Kind], text: bytes) -> _Kind | None:
    try:
        with suppress(msgspec.ValidationError):
            return cast("_Kind", _DECODERS[kind].decode(text))
        return cast("_Kind | None", _as_far_as_it_goes(kind, text))
    except (msgspec.MsgspecError, RecursionError):
        return None


def _as_far_as_it_goes(kind: Any, text: bytes | msgspec.Raw) -> Any:
    """A value of this type, without the fields that are of another one; None where all of it is."""
    for one in get_args(kind) if isinstance(kind, UnionType) else (kind,):
        with suppress(msgspec.ValidationError):
            if get_origin(one) is list:
                items = [_as_far_as_it_goes(get_args(one)[0], item) for item in _items(text)]
                return [item for item in items if item is not None]
            if not issubclass(one, msgspec.Struct):
                return msgspec.json.decode(text, type=one)
            given, known = _fields(text), msgspec.structs.fields(one)
            return one(
                **{
                    field.name: _as_far_as_it_goes(field.type, given[field.name])
                    for field in known
                    if field.name in given
                }
            )
    return None
