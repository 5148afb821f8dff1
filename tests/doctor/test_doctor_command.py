"""`slipstream doctor` as an operator runs it: its text, its JSON, its exit codes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import slipstream
from planted import ROOT

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = sys.modules["transformers"] = None
from slipstream.cli import main
main()
"""


FILES = [option for name in ("sidecar", "explorer", "trainer") for option in (f"--{name}", str(ROOT / f"{name}.yaml"))]


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, run in this process."""
    words = ["doctor", *FILES, *arguments]
    return subprocess.CompletedProcess(words, *asyncio.run(slipstream(*words, columns=None)))


def doctor_without_torch(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own, on a machine that has no torch."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "doctor", *FILES, *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture
def overlay(deployment: Path) -> Path:
    path = deployment / "mine.yaml"
    path.write_text("cluster: {node_num: 2}\n")
    return path


def test_the_shipped_files_are_right(deployment: Path) -> None:
    run = doctor_without_torch("--offline", "--strict")
    assert (run.returncode, run.stdout, run.stderr) == (0, "Nothing found (the files alone were looked at)\n", "")


def test_adapters_are_right_with_the_embedded_engine_and_no_error(deployment: Path) -> None:
    path = deployment / "adapters.yaml"
    path.write_text("model: {lora_configs: [{lora_rank: 16}]}\n")
    run = doctor("--offline", "--overlay", str(path))
    assert run.returncode == 0
    assert run.stdout.count("warning: files.adapters_never_answer\n") == 2
    assert "2 warnings (the files alone were looked at)\n" in run.stdout


def test_an_error_is_told_to_people(deployment: Path, overlay: Path) -> None:
    run = doctor("--offline", "--overlay", str(overlay))
    assert (run.returncode, run.stderr) == (1, "")
    assert run.stdout.startswith("error: files.sqlite_on_several_hosts\n  where ")
    assert "  found SQLite with cluster.node_num: 2\n  why   SQLite's locks" in run.stdout
    assert "  fix   PostgreSQL: add `--overlay overlays/postgresql.yaml`" in run.stdout
    assert "2 errors (the files alone were looked at)\n" in run.stdout
    assert max(map(len, run.stdout.splitlines())) <= max(100, len(str(ROOT)) + 80)


def test_and_to_programs(deployment: Path, overlay: Path) -> None:
    run = doctor("--offline", "--json", "--overlay", str(overlay))
    told = json.loads(run.stdout)
    assert run.returncode == 1
    assert (told["errors"], told["warnings"], told["offline"]) == (2, 0, True)
    assert {finding["code"] for finding in told["findings"]} == {"files.sqlite_on_several_hosts"}
    assert all(set(finding) == {"code", "severity", "where", "found", "why", "fix"} for finding in told["findings"])


def test_a_warning_is_no_failure_unless_it_is_wanted(deployment: Path) -> None:
    one_gpu = ("--offline", "--overlay", str(ROOT / "overlays" / "one-gpu.yaml"))
    assert doctor(*one_gpu).returncode == 0
    assert doctor(*one_gpu, "--strict").returncode == 1
    assert doctor(*one_gpu).stdout.endswith("\n1 warning (the files alone were looked at)\n")


@pytest.mark.parametrize("arguments", [("--trainer", "missing.yaml"), ("--overlay", "missing.yaml")])
def test_a_file_that_is_not_there(deployment: Path, arguments: tuple[str, str]) -> None:
    run = doctor("--offline", *arguments)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("slipstream: missing.yaml: ")


def test_the_files_of_an_explorer_elsewhere_need_not_be_here(tmp_path: Path) -> None:
    sidecar = tmp_path / "sidecar.yaml"
    absent = [word for name in ("explorer", "trainer") for word in (f"--{name}", str(tmp_path / f"{name}.yaml"))]
    asked = "explorer: {base_url: 'http://policy.internal:8010'}\n"
    sidecar.write_text(asked + "selection: {sampling: {rate: 0.5}}\nrewards: {calculators: [{length: {max: 9}}]}\n")
    run = doctor("--offline", "--sidecar", str(sidecar), *absent)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "the Explorer is at http://policy.internal:8010: the sidecar's part alone is examined" in run.stderr

    sidecar.write_text(asked + "capture: {redact: []}\n")
    assert "files.nothing_redacted" in doctor("--offline", "--sidecar", str(sidecar), *absent).stdout

    sidecar.write_text("explorer: {base_url: 'http://127.0.0.1:8010'}\n")
    assert doctor("--offline", "--sidecar", str(sidecar), *absent).returncode == 2, "here they are expected"


def test_a_variable_that_is_not_set(deployment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MODEL_PATH")
    run = doctor("--offline")
    assert run.returncode == 2
    assert "MODEL_PATH" in run.stderr


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("SLIPSTREAM_RUNS__REPEAT_TIME", "none", "runs.repeat_time: "),
        (
            "SLIPSTREAM_SELECTION",
            "{python: 'math:pi'}",
            "selection.python: expected a function of a task, or a class or an object with select(task); found float",
        ),
    ],
)
def test_what_the_sidecar_refuses(
    deployment: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    monkeypatch.setenv(variable, value)
    run = doctor("--offline")
    assert run.returncode == 2
    assert message in run.stderr


@pytest.mark.slow
def test_it_looks_at_the_machine_and_what_runs_too(deployment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for section, address in (("LISTEN", "127.0.0.1:9"), ("PRODUCTION__BASE_URL", "http://127.0.0.1:10/v1")):
        monkeypatch.setenv(f"SLIPSTREAM_{section}", address)
    monkeypatch.setenv("EXPLORER_PORT", "11")
    monkeypatch.setenv("SLIPSTREAM_EXPLORER__BASE_URL", "http://127.0.0.1:11")
    (deployment / "runs").rmdir()
    run = doctor_without_torch("--json")
    assert run.returncode == 1
    found = {finding["code"] for finding in json.loads(run.stdout)["findings"]}
    assert found == {
        "machine.checkpoint_root_missing",
        "running.production_unreachable",
        "running.explorer_unreachable",
        "running.sidecar_unreachable",
    }
