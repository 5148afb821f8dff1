"""Memory that a process may use: the machine's, or less where a container or a unit of systemd has a limit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_GROUPS = {
    "": (Path("/sys/fs/cgroup"), "memory.max"),
    "memory": (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
}
"""Folder and file of a limit, of Linux's control groups in version 2 and in version 1."""


def usable_memory() -> int:
    """Return bytes."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_limits()])


def _limits() -> Iterator[int]:
    """The limits of this process's control groups and of those around them. A container may see its own as the root,
    under the name that it has outside."""
    try:
        groups = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for group in groups:
        _, controllers, name = group.split(":", 2)
        if controllers not in _GROUPS:
            continue
        root, file = _GROUPS[controllers]
        own = root / name.lstrip("/")
        for folder in (own, *own.parents[: len(own.parts) - len(root.parts)]):
            try:
                limit = (folder / file).read_text().strip()
            except OSError:
                continue
            if limit.isdecimal():  # else it is "max"
                yield int(limit)
