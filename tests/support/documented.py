"""Comparisons of what a page lists with what the code has; a failure says what to write, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def lists_all(page: str, listed: Iterable[str], known: Iterable[str]) -> None:
    """Check that a page lists everything that is known, nothing else, and nothing twice.

    Args:
        page: where one looks for it, such as `docs/api.md`.
    """
    rows, names = Counter([*listed]), set(known)
    problems = {
        "it lacks": sorted(names - rows.keys()),
        "it lists what is not there": sorted(rows.keys() - names),
        "it lists more than once": sorted(name for name, count in rows.items() if count > 1),
    }
    told = [f"{problem}: {', '.join(found)}" for problem, found in problems.items() if found]
    assert not told, f"{page}: {'; '.join(told)}"
