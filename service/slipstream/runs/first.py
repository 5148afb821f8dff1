"""The first failure of a group, which alone is worth a line in the log: other runs mostly fail for the same reason."""

from __future__ import annotations

from collections import OrderedDict

_REMEMBERED = 256
"""Groups: more than have runs under way at once, as a rule."""


class FirstOfGroup:
    """Tells the first run of a group from the next ones, of the newest groups."""

    def __init__(self) -> None:
        self._groups: OrderedDict[str, None] = OrderedDict()

    def __call__(self, group_id: str) -> bool:
        """Return whether this is the first call for a group."""
        first = group_id not in self._groups
        self._groups[group_id] = None
        if len(self._groups) > _REMEMBERED:
            self._groups.popitem(last=False)
        return first
