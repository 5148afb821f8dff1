"""References to items of earlier answers, which the provider holds, and the items themselves in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipstream.dialects.responses.vocabulary import kind_of


def references(request: Mapping[str, Any]) -> list[str]:
    """The ids of the items that a request names and does not hold."""
    return [name for item in _items(request) if (name := _referred(item)) is not None]


def resolved(request: Mapping[str, Any], items: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The request with items in the place of references to them.

    Args:
        items: items of earlier answers, by id. A reference to another one stays.
    """
    asked = [items.get(name, item) if (name := _referred(item)) is not None else item for item in _items(request)]
    return {**request, **({"input": asked} if asked else {})}


def _items(request: Mapping[str, Any]) -> list[Any]:
    items = request.get("input")
    return items if isinstance(items, list) else []


def _referred(item: Any) -> str | None:
    if kind_of(item) != "item_reference":
        return None
    name = item.get("id")
    return name if isinstance(name, str) else None


def answer_of(item: str) -> str:
    """The id of the policy's answer that an item is of, by the ids that `answer.response_of` gives items."""
    kind, _, name = item.partition("_")
    return name if kind in ("msg", "rs") else name.rpartition("_")[0]
