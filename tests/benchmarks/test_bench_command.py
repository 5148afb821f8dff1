"""What the benchmark's command says before it measures anything, and that it leaves no process behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.__main__ import main
from bench.processes import Process, Unavailable
from bench.targets import TARGETS, chosen


def test_it_says_what_is_missing_and_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([]) == 2
    said = capsys.readouterr().err
    assert "nginx and wrk not found" in said
    assert "apt-get install" in said


def test_it_writes_into_no_file_without_the_region(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("no markers")
    assert main(["--write", str(page)]) == 2
    assert "--write" in capsys.readouterr().err
    assert page.read_text() == "no markers"


def test_an_unknown_target_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "apache"])
    said = capsys.readouterr().err
    assert "'apache'" in said
    assert all(target.key in said for target in TARGETS)


def test_a_name_stands_for_all_that_begin_with_it_and_direct_is_always_measured() -> None:
    assert [target.key for target in chosen("slipstream-100, nginx")] == [
        "direct",
        "nginx",
        "slipstream-100",
        "slipstream-100-2",
    ]
    assert chosen("") == list(TARGETS)


def test_python_m_bench_is_the_command() -> None:
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "benchmarks")}
    ended = subprocess.run([sys.executable, "-m", "bench", "--help"], capture_output=True, text=True, env=here)
    assert ended.returncode == 0
    assert "--quick" in ended.stdout


def test_the_end_of_a_program_is_the_end_of_all_that_it_started(tmp_path: Path) -> None:
    process = Process(["sh", "-c", "sleep 60 & sleep 60"], os.sched_getaffinity(0), tmp_path / "log", {})
    while len(pids := process.tree()) < 3:
        assert not process.ended
    process.hold()  # also one that is held
    process.end()
    running = [pid for pid in pids if Path(f"/proc/{pid}/exe").exists()]
    assert running == []


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no-such-proxy"):
        Process(["no-such-proxy"], os.sched_getaffinity(0), tmp_path / "log", {})
