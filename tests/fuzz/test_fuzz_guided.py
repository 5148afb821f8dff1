"""The targets of `make test-fuzz`, which has an environment of its own, on the bytes that it begins with."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

GUIDED = Path(__file__).with_name("guided.py")


@pytest.fixture
def guided(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module without atheris, which measures coverage alone."""
    atheris = SimpleNamespace(instrument_imports=lambda **_: contextlib.nullcontext())
    monkeypatch.setitem(sys.modules, "atheris", atheris)
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("guided", GUIDED)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["requests", "answers"])
async def test_the_readers_come_to_the_same_wherever_the_bytes_are_cut(guided: ModuleType, name: str) -> None:
    target, seeds = guided.TARGETS[name]
    for seed in seeds:
        for at in range(0, 256, 16):
            target(bytes([at]) + seed)
