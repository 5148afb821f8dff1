"""Functions of one folder for `killed_anywhere`."""

from __future__ import annotations

from pathlib import Path

from slipstream.versions import keeping, lanes


def keep_2(folder: Path) -> None:
    keeping.keep(folder / "job", folder / "keep", 2, copy=False)


def put_2(folder: Path) -> None:
    lanes.put(folder / "lane", folder / "keep" / "2", 2, copy=False)
