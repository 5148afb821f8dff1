"""docs/doctor.md: every problem with its severity, why and fix, and no other."""

from __future__ import annotations

import re

from planted import ROOT, Mistake, Plant

from slipstream.doctor.catalogue import PROBLEMS
from slipstream.doctor.examination import examine
from slipstream.doctor.report import as_text

PAGE = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([a-z]+\.[a-z_]+)` \| (error|warning) \| (.+) \| (.+) \|$", re.MULTILINE)


def test_every_problem_is_documented_as_the_doctor_tells_it() -> None:
    told = [(problem.code, problem.severity, problem.why, problem.fix) for problem in PROBLEMS]
    assert ROW.findall(PAGE) == told


def test_the_example_is_what_the_doctor_says(plant: Plant) -> None:
    findings = examine(plant(Mistake(explorer={"explorer": {"rollout_model": {"engine_num": 1}}})), offline=True)
    assert f"$ slipstream doctor --offline\n{as_text(findings, offline=True)}```" in PAGE


def test_a_code_stands_for_one_problem() -> None:
    codes = [problem.code for problem in PROBLEMS]
    assert len(codes) == len(set(codes))


def test_a_problem_is_told_in_sentences() -> None:
    for problem in PROBLEMS:
        for text in (problem.why, problem.fix):
            assert text[-1] in ".)", text
