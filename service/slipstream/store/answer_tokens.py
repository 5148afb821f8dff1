"""Tokens of stored answers, as those who gave them counted them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.bodies import unpacked_text
from slipstream.store.tables.capture import CallRow

_COUNTS = ("prompt_tokens", "completion_tokens")

_ROWS = 16
"""Rows whose bodies are in memory at once."""


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None


class _Answer(msgspec.Struct):
    usage: _Usage | None = None


_decoder = msgspec.json.Decoder(_Answer)
"""Skips everything else of an answer without making objects of it."""


async def of_calls(session: AsyncSession, calls: Collection[int]) -> dict[int, int | None]:
    """The tokens of each of these calls, of its prompt and its answer; None where the answer does not say, as a stream
    without `usage`."""
    found: dict[int, int | None] = {}
    ids = sorted(calls)
    for at in range(0, len(ids), _ROWS):
        some = select(CallRow.id, CallRow.answer).where(CallRow.id.in_(ids[at : at + _ROWS]))
        rows = (await session.execute(some)).all()
        counts = await asyncio.to_thread(lambda bodies: list(map(tokens, bodies)), [row.answer for row in rows])
        found.update(zip((row.id for row in rows), counts, strict=True))
    return found


def tokens(packed: bytes) -> int | None:
    """The tokens that a packed answer says it took; None if it does not say."""
    usage = _usage(packed)
    total = usage.total_tokens
    if total is None and usage.prompt_tokens is not None and usage.completion_tokens is not None:
        total = usage.prompt_tokens + usage.completion_tokens
    return None if total is None or total < 0 else total


def usage(answers: Mapping[int, Mapping[str, Any]], rows: Iterable[int]) -> dict[str, int] | None:
    """The tokens of these answers together, as those who gave them counted them; None if none of them says it."""
    said = [answers[pk].get("usage") for pk in rows if pk in answers]
    counted = [each for each in said if isinstance(each, dict) and all(_is_count(each.get(name)) for name in _COUNTS)]
    return {name: sum(each[name] for each in counted) for name in _COUNTS} if counted else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 0


def completion_tokens(packed: bytes) -> int | None:
    """The tokens that a packed answer says it has itself; None if it does not say."""
    written = _usage(packed).completion_tokens
    return None if written is None or written < 0 else written


def _usage(packed: bytes) -> _Usage:
    try:
        return _decoder.decode(unpacked_text(packed)).usage or _Usage()
    except msgspec.MsgspecError:  # a server's usage may have any form
        return _Usage()
