"""The embedded Trainer's memory stays where it is, whatever the lengths of what it trains on."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainer_memory import measure

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_trainer_does_not_grow(tiny_model: Path, tmp_path: Path) -> None:
    held = list(measure(tmp_path, tiny_model, 14, ROOT))
    assert [each.version for each in held][-1] == 14
    settled, last = [each.now for each in held if each.version >= 6], held[-1].now
    assert last - min(settled) < 100, "MiB in 8 versions; with a shape for each length it was 220"
