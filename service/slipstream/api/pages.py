"""Pages of lists that begin with the newest, by the number of the last that was shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

LARGEST_ID = 2**63 - 1

LARGEST_VERSION = 2**31 - 1
"""Largest number of a version that the store can look for."""


class Numbered(Protocol):
    """An entry of a list, which has a number."""

    @property
    def id(self) -> int: ...


N = TypeVar("N", bound=Numbered)


class PageQuery(BaseModel):
    """A page: how many, and the cursor that the page before it gave."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    cursor: Annotated[int, Field(ge=1, le=LARGEST_ID)] | None = None


def page_of(name: str, found: Sequence[N], limit: int, shown: Callable[[N], Any]) -> dict[str, Any]:
    """The answer with a page.

    Args:
        name: of the list in it.
        found: one more than the page may have, if there is one.
        shown: makes an entry.
    """
    page = found[:limit]
    return {name: [shown(each) for each in page], "next": page[-1].id if len(found) > limit else None}
