"""The tool calls of a streamed answer, put together from their pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slipstream.dialects.body import Unreadable, parse_json

_Piece = dict[str, Any]


class ToolCalls:
    """Gathers the tool calls of one message.

    Most servers number the calls, and give a call's id with its first piece alone. Others number none, or begin at 1.
    Gemini and some more give parallel calls one number; an older vLLM gave each piece of a call an id of its own.
    """

    def __init__(self) -> None:
        self._calls: dict[int, _Piece] = {}
        self._moved: dict[int, int] = {}
        """The places of the calls that came last under a number that another call has."""
        self._of_id: dict[str, int] = {}
        self._last = -1

    def add(self, pieces: Sequence[_Piece]) -> None:
        """
        Raises:
            Unreadable: `no_answer`, a piece is of another form.
        """
        for piece in pieces:
            place, call_id = self._place(piece), piece.get("id")
            self._last = max(self._last, place)
            if isinstance(call_id, str):
                self._of_id[call_id] = place
            call = self._calls.setdefault(place, {})
            for key, value in piece.items():
                if value in (None, "") or key == "index":
                    continue
                if key == "function":
                    add_function(call.setdefault(key, {}), value, text="arguments")
                elif key == "custom":
                    add_function(call.setdefault(key, {}), value, text="input")
                else:
                    call[key] = value

    @property
    def in_order(self) -> list[_Piece]:
        """The calls so far."""
        return [self._calls[place] for place in sorted(self._calls)]

    def _place(self, piece: _Piece) -> int:
        """The place of the call that a piece is of, which may be a new one."""
        given, call_id = piece.get("index"), piece.get("id")
        index: int | None = given if type(given) is int else None
        at = max(self._last, 0) if index is None else self._moved.get(index, index)
        call = self._calls.get(at, {})
        if not call_id or call_id == call.get("id") or (index is not None and not call.get("id")):
            return at
        known = self._of_id.get(call_id) if isinstance(call_id, str) else None
        if known is None and index is not None and not _is_another(call, piece):
            return at
        at = self._last + 1 if known is None else known
        if index is not None:
            self._moved[index] = at
        return at


def add_function(function: _Piece, piece: Any, *, text: str) -> None:
    """Add a piece of a function that is called. Only its arguments come in pieces; a name comes whole, with some
    servers again in each piece.

    Args:
        text: the field of what is passed.

    Raises:
        Unreadable: `no_answer`, the piece is of another form.
    """
    if not isinstance(piece, dict):
        raise Unreadable("no_answer")
    for key, value in piece.items():
        if key == text and value is not None:
            if not isinstance(value, str):
                raise Unreadable("no_answer")
            function[key] = function.get(key, "") + value
        elif value not in (None, ""):
            function[key] = value
    function.setdefault(text, "")


def _is_another(call: _Piece, piece: _Piece) -> bool:
    """Return whether a piece with an unknown id is of another call than the one that came last under its number.

    The id alone does not tell: each piece of a call may have one. So it must have another name, or bring something
    where what was passed before is whole.
    """
    earlier, function = call.get("function"), piece.get("function")
    if not isinstance(earlier, dict) or not isinstance(function, dict):
        return True
    if function.get("name") not in (None, "", earlier.get("name")):
        return True
    if not function.get("arguments") or not earlier["arguments"].rstrip().endswith("}"):
        return False
    try:
        parse_json(earlier["arguments"])
    except Unreadable:
        return False
    return True
