"""The table of protections against Trinity's traps fits the code, the tests and the page that shows it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def _table() -> ModuleType:
    """`tests/trinity` is not collected here: it needs an environment of its own, and this file of it does not."""
    file = ROOT / "tests" / "trinity" / "protections.py"
    spec = importlib.util.spec_from_file_location("protections", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["protections"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


table = _table()


@pytest.mark.parametrize("protection", table.PROTECTIONS, ids=lambda protection: protection.trap)
def test_what_is_taken_out_is_there_and_so_is_its_test(protection: table.Protection) -> None:
    assert [problem for edit in protection.edits if (problem := table.problems(edit))] == []
    file, _, test = protection.test.partition("::")
    assert f"def {test.partition('[')[0]}(" in (ROOT / "tests" / "trinity" / file).read_text()


def test_the_page_shows_every_protection() -> None:
    page = (ROOT / "docs" / "contract.md").read_text()
    for protection in table.PROTECTIONS:
        assert protection.test.partition("::")[2].partition("[")[0] in page, protection.trap
