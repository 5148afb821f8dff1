"""The simulation of rollouts counts as the service does, and the page has its figures."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from rollouts.__main__ import main
from rollouts.simulation import evidence_path, proven_at

from slipstream.evidence import Claim, Evidence

PAGE = Path(__file__).parents[2] / "docs" / "evidence.md"


@pytest.mark.parametrize(("claim", "margin"), [(Claim.BETTER, 0.0), (Claim.BETTER, -0.05), (Claim.WORSE, 0.1)])
def test_evidence_is_the_services(claim: Claim, margin: float) -> None:
    found = np.random.default_rng(1).uniform(-1, 1, 300) + (0.2 if claim is Claim.BETTER else -0.2)
    found = np.clip(found, -1, 1)
    evidence, path = Evidence(claim, margin), []
    for each in found.tolist():
        evidence.add(each)
        path.append(evidence.processes[0][1].log_e)
    assert evidence_path(found, claim, margin) == pytest.approx(path, abs=1e-9)
    first = next(at for at, log_e in enumerate(path, 1) if log_e >= -np.log(0.05))
    assert proven_at(found, claim, 0.05, margin) == first > 1


def rows(page: Path) -> list[list[str]]:
    """The rows of the table that the simulation wrote."""
    region = (
        page.read_text(encoding="utf-8").partition("<!-- rollouts: begin -->")[2].partition("<!-- rollouts: end -->")[0]
    )
    return [line.strip("| ").split(" | ") for line in region.splitlines() if line.startswith("|")][2:]


@pytest.mark.slow
def test_a_short_run_has_each_row_of_the_page(tmp_path: Path) -> None:
    copy = tmp_path / "evidence.md"
    copy.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    main(["--quick", "--write", str(copy)])
    page, short = rows(PAGE), rows(copy)
    assert [row[0] for row in short] == [row[0] for row in page]
    assert [row[1] for row in short] != [row[1] for row in page]


def test_the_page_has_no_error_rate_above_what_is_promised() -> None:
    promised = re.findall(r"\| (0\.\d+) [^|]*\| (?:about )?(0\.\d+) at most \|", PAGE.read_text(encoding="utf-8"))
    assert len(promised) >= 8
    assert [pair for pair in promised if float(pair[0]) > float(pair[1])] == []
