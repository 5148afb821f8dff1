"""Paths of files and folders in settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator


def _as_path(value: Any) -> Any:
    if value is not None and not isinstance(value, str | Path):
        raise ValueError("the path of a file")
    return Path(value) if value else None


FilePath = Annotated[Path | None, BeforeValidator(_as_path)]
"""The path of a file; an empty text is None."""


def _as_folder(value: Any) -> Any:
    if value is not None and not isinstance(value, str | Path):
        raise ValueError("the path of a folder")
    return Path(value) if value else None


FolderPath = Annotated[Path | None, BeforeValidator(_as_folder)]
"""The path of a folder; an empty text is None."""
