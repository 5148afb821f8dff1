"""What a fault is, and the list of them all.

A fault is a function that breaks something, yields, and heals it. It counts itself (`World.struck`) only where it
really happened to something.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chaos.world import World

LONG = 2.5
"""Seconds: longer than every timeout of the sidecar in these schedules."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that can be broken.

    Attributes:
        what: in words, for the table.
        break_: breaks it when it is entered, and heals it when it is left.
        production: answers of production may suffer meanwhile. Else none may.
        needs: what its world must have: sqlite, postgresql, or the endpoint of `runs.mode: webhook`; None: nothing.
        longest: seconds that it lasts, at most.
    """

    name: str
    what: str
    break_: Callable[[World, random.Random], AbstractAsyncContextManager[None]]
    production: bool = False
    needs: str | None = None
    longest: float = LONG


FAULTS: dict[str, Fault] = {}
"""By name, in the order of the table."""

_Function = Callable[["World", random.Random], AsyncIterator[None]]


def fault(
    name: str,
    what: str,
    *,
    production: bool = False,
    needs: str | None = None,
    longest: float = LONG,
) -> Callable[[_Function], _Function]:
    """Add a function to the faults; the arguments are those of `Fault`."""

    def add(function: _Function) -> _Function:
        FAULTS[name] = Fault(name, what, asynccontextmanager(function), production, needs, longest)
        return function

    return add
