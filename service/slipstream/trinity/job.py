"""What Explorer and Trainer of a job leave in its directory, whichever engine they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def job_directory(document: Mapping[str, Any]) -> Path:
    """`checkpoint_root_dir/project/group/name`, absolute, with Trinity's defaults for what is not there."""
    parts = (document.get("project", "Trinity-RFT"), document.get("group", ""), document.get("name", "rft"))
    return Path(document.get("checkpoint_root_dir") or "").absolute().joinpath(*map(str, parts))


def trained_steps(job: Path, trainer: str = "trainer") -> int:
    """Training steps when the Trainer of this name last saved; 0 before that."""
    meta = job / f"{trainer}_meta.json"
    return int(json.loads(meta.read_text())["latest_iteration"]) if meta.exists() else 0
