"""The items of a streamed output, put together from the events about each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipstream.dialects.body import Unreadable

_TEXTS = {
    "response.output_text": ("content", "content_index", "output_text", "text"),
    "response.refusal": ("content", "content_index", "refusal", "refusal"),
    "response.reasoning_text": ("content", "content_index", "reasoning_text", "text"),
    "response.reasoning_summary_text": ("summary", "summary_index", "summary_text", "text"),
}
"""Events about a part of an item: the item's list of parts, the event's index in it, the part's type, its text."""

_OWNERS = {"content": "message", "summary": "reasoning"}
"""The type of an item that has a list of parts, where none was announced."""

_ARGUMENTS = {
    "response.function_call_arguments": ("function_call", "arguments"),
    "response.custom_tool_call_input": ("custom_tool_call", "input"),
}
"""Events about a field of an item: the item's type, the field."""

_PARTS = {
    "response.content_part": ("content", "content_index"),
    "response.reasoning_summary_part": ("summary", "summary_index"),
}
"""Events that bring a part of an item: the item's list of parts, the event's index in it."""


class OutputItems:
    """Gathers items by their place in the output.

    Servers leave out indexes and ids, or count them wrongly. So an event that names no item is about the last one, and
    text that names no part of it is about the last part, until that is done.
    """

    def __init__(self) -> None:
        self._items: dict[int, dict[str, Any]] = {}
        self._places: dict[str, int] = {}
        """The place of each item by its id."""
        self._done = set[int]()
        self._last = -1
        self._closed: dict[int, dict[str, Any]] = {}
        """The parts whose text is whole, by Python's id of each."""

    @property
    def in_order(self) -> list[dict[str, Any]]:
        """The items in their order."""
        return [self._items[place] for place in sorted(self._items)]

    @property
    def all_done(self) -> bool:
        """True if there are items and each was said to be done."""
        return bool(self._items) and self._items.keys() == self._done

    def add(self, kind: str, event: Mapping[str, Any]) -> None:
        """Take what an event of the type `kind` says; others than those about items are left out.

        Raises:
            Unreadable: `no_answer` for text that is none.
        """
        what, _, step = kind.rpartition(".")
        if what == "response.output_item" and isinstance(event.get("item"), dict):
            self._add_item(event, event["item"], done=step == "done")
        elif what in _PARTS and isinstance(event.get("part"), dict):
            parts, index = _PARTS[what]
            kind_of_part = event["part"].get("type")
            part = self._part(self._item(event, _OWNERS[parts]), parts, event.get(index), kind_of_part, step)
            _merge(part, event["part"])
        elif what in _TEXTS:
            parts, index, kind_of_part, field = _TEXTS[what]
            part = self._part(self._item(event, _OWNERS[parts]), parts, event.get(index), kind_of_part, "text")
            _add_text(part, field, step, event)
            _add_logprobs(part, step, event.get("logprobs"))
            if step == "done":
                self._closed[id(part)] = part
        elif what in _ARGUMENTS:
            kind_of_item, field = _ARGUMENTS[what]
            _add_text(self._item(event, kind_of_item), field, step, event)
        elif kind == "response.output_text.annotation.added":
            item = self._item(event, "message")
            part = self._part(item, "content", event.get("content_index"), "output_text", "annotation")
            part["annotations"] = [*(part.get("annotations") or []), event.get("annotation")]

    def _add_item(self, event: Mapping[str, Any], item: dict[str, Any], *, done: bool) -> None:
        place, name = event.get("output_index"), item.get("id")
        if type(place) is not int:
            known = self._places.get(name) if isinstance(name, str) else None
            unnamed = self._last if done and self._last not in self._done else None
            place = known if known is not None else unnamed
        if place is None or place < 0:
            place = max(self._items, default=-1) + 1
        _merge(self._items.setdefault(place, {}), item)
        if isinstance(name, str):
            self._places[name] = place
        if done:
            self._done.add(place)
        self._last = place

    def _item(self, event: Mapping[str, Any], kind: str) -> dict[str, Any]:
        """The item that an event is about; a new one of this type if there is none."""
        place, name = event.get("output_index"), event.get("item_id")
        if type(place) is not int or place < 0:
            place = self._places.get(name, self._last) if isinstance(name, str) else self._last
        if place not in self._items:
            place = self._last = max(place, 0)
            self._items[place] = {"type": kind} | ({"role": "assistant"} if kind == "message" else {})
        return self._items[place]

    def _part(self, item: dict[str, Any], parts: str, index: Any, kind: Any, step: str) -> dict[str, Any]:
        """The part that an event is about; a new one of this type if there is none."""
        there = item.get(parts)
        if not isinstance(there, list):
            there = item[parts] = []
        known = there[index] if type(index) is int and 0 <= index < len(there) else None
        if known is None and there and step != "added" and not (step == "text" and id(there[-1]) in self._closed):
            known = there[-1]
        if not isinstance(known, dict) or known.get("type") != kind:
            known = {"type": kind}
            there.append(known)
        return known


def _merge(into: dict[str, Any], said: Mapping[str, Any]) -> None:
    """Take what is said, except emptiness where there is something already."""
    into.update({name: value for name, value in said.items() if value not in (None, "", []) or not into.get(name)})


def _add_text(into: dict[str, Any], field: str, step: str, event: Mapping[str, Any]) -> None:
    if step == "delta":
        into[field] = _text(into.get(field) or "") + _text(event.get("delta"))
    elif step == "done" and event.get(field):
        into[field] = _text(event[field])


def _add_logprobs(part: dict[str, Any], step: str, logprobs: Any) -> None:
    if not isinstance(logprobs, list) or not logprobs:
        return
    before = part.get("logprobs")
    part["logprobs"] = [*before, *logprobs] if step == "delta" and isinstance(before, list) else logprobs


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Unreadable("no_answer")
    return value
