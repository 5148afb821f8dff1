"""`slipstream trinity`, with small programs in place of `trinity` and `ray` that note what they are told."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipstream.errors import SlipstreamError
from slipstream.trinity.checkpoint_files import RESUME_MARKER, VERSION_MARKER, steps
from slipstream.trinity.document import load_document
from slipstream.trinity.job import trainer_lock
from slipstream.trinity.launch import launch

ROOT = Path(__file__).parents[1]
FOUR_FREE = "Resources\n Total Usage:\n 0.0/8.0 CPU\n 0.0/4.0 GPU\n"

# `ray status` succeeds where the file `status` is, and prints it; `ray start --block` runs until it is told to end.
RAY = """
import os, pathlib, signal, sys, time
state = pathlib.Path(os.environ["STATE"])
with open(state / "told", "a") as told:
    print("ray", *sys.argv[1:], file=told)
with open(state / "tokens", "a") as tokens:
    print(sys.argv[1], os.environ.get("RAY_AUTH_MODE"), os.environ.get("RAY_AUTH_TOKEN"), file=tokens)
if sys.argv[1] == "status":
    status = state / "status"
    print(status.read_text() if status.exists() else "")
    sys.exit(0 if status.exists() else 1)
if sys.argv[1] == "health-check":
    sys.exit(0 if (state / "own").exists() else 1)
def end(*_):
    (state / "own").unlink(missing_ok=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
(state / "own").write_text(str(os.getpid()))
while True:
    time.sleep(0.1)
"""

# Does what `behaviour` says: an exit code, or `wait` until Ctrl-C.
TRINITY = """
import os, pathlib, shutil, sys, time
state = pathlib.Path(os.environ["STATE"])
with open(state / "told", "a") as told:
    print("trinity", *sys.argv[1:3], os.environ.get("RAY_ADDRESS"), file=told)
with open(state / "tokens", "a") as tokens:
    print("trinity", os.environ.get("RAY_AUTH_MODE"), os.environ.get("RAY_AUTH_TOKEN"), file=tokens)
shutil.copy(sys.argv[3], state / "config.yaml")
(state / "mode").write_text(oct(os.stat(sys.argv[3]).st_mode & 0o777))
behaviour = (state / "behaviour").read_text()
if behaviour != "wait":
    sys.exit(int(behaviour))
try:
    (state / "serving").touch()
    while True:
        time.sleep(0.1)
except KeyboardInterrupt:
    (state / "interrupted").touch()
    sys.exit(130)
"""

Run = Callable[..., "subprocess.Popen[str]"]

AS_FROM_A_TERMINAL = ("env", "--default-signal=INT")
"""The tests may run in a script's background, where SIGINT is ignored, by programs that they start too."""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """`slipstream trinity` on the shipped file of a mode, in a place of its own."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, program in (("ray", RAY), ("trinity", TRINITY)):
        (programs / name).write_text(f"#!{sys.executable}{program}")
        (programs / name).chmod(0o755)

    def start(
        config: str = "explorer.yaml", *options: str, behaviour: str = "0", before: Sequence[str] = (), **variables: str
    ) -> subprocess.Popen[str]:
        (tmp_path / "behaviour").write_text(behaviour)
        environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        environment |= {"STATE": str(tmp_path), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        environment |= {"MODEL_PATH": "/model", "CHECKPOINT_ROOT_DIR": str(tmp_path / "checkpoints")}
        command = [*before, sys.executable, "-m", "slipstream", "trinity", "--config", str(ROOT / config), *options]
        return subprocess.Popen(
            command,
            env=environment | variables,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def result(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code, and what it said."""
    output, errors = process.communicate(timeout=60)
    return process.returncode, output + errors


def told(folder: Path) -> list[str]:
    lines = (folder / "told").read_text().splitlines() if (folder / "told").exists() else []
    return [line for line in lines if "health-check" not in line]


def until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_programs_of_its_own_ray_have_a_secret_in_common(run: Run, tmp_path: Path) -> None:
    """Ray 2.60 makes none by itself at `ray start`, and its health check has to be told."""
    result(run("explorer.yaml"))
    of = {line.split()[0]: line.split()[1:] for line in (tmp_path / "tokens").read_text().splitlines()}
    assert of["status"] == ["None", "None"], "whether one runs already is asked as the user would ask"
    assert of["start"] == of["health-check"] == of["trinity"]
    mode, token = of["start"]
    assert (mode, len(token)) == ("token", 64)


def test_how_a_ray_asks_is_left_to_who_says_so(run: Run, tmp_path: Path) -> None:
    result(run("explorer.yaml", RAY_AUTH_MODE="disabled"))
    assert {line.partition(" ")[2] for line in (tmp_path / "tokens").read_text().splitlines()} == {"disabled None"}


def test_trinity_runs_on_the_merged_file_and_on_a_ray_of_its_own(run: Run, tmp_path: Path) -> None:
    code, said = result(run("explorer.yaml", "--overlay", str(ROOT / "overlays/qwen3.yaml"), EXPLORER_PORT="8999"))
    assert told(tmp_path) == [
        "ray status",
        "ray start --head --block --node-ip-address=127.0.0.1 --port=6379 --include-dashboard=false"
        f" --disable-usage-stats --num-cpus={max(os.cpu_count() or 1, 24)} --num-gpus=4",
        "trinity run --config 127.0.0.1:6379",
    ]
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert config["model"] == {
        "model_path": "/model",
        "max_model_len": 12288,
        "max_response_tokens": 8192,
        "temperature": 1.0,
    }
    assert config["explorer"]["proxy_port"] == 8999
    assert (tmp_path / "mode").read_text() == "0o600", "it may hold the database's password"
    assert not (tmp_path / "own").exists(), "its Ray was stopped"
    assert code == 3, said
    assert "the Explorer ended by itself" in said


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_trinity_in_order_and_then_its_ray(run: Run, tmp_path: Path, number: signal.Signals) -> None:
    process = run(behaviour="wait", before=AS_FROM_A_TERMINAL)
    until((tmp_path / "serving").exists)
    process.send_signal(number)
    assert result(process)[0] == 0
    assert (tmp_path / "interrupted").exists()
    assert not (tmp_path / "own").exists()


@pytest.mark.slow
def test_one_in_a_scripts_background_where_ctrl_c_is_ignored_can_still_end_trinity(run: Run, tmp_path: Path) -> None:
    process = run(behaviour="wait", before=("sh", "-c", "trap '' INT; exec \"$@\"", "sh"))
    until((tmp_path / "serving").exists)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert result(process)[0] == 0
    assert (tmp_path / "interrupted").exists()


@pytest.mark.slow
def test_a_ray_that_runs_is_used_and_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "status").write_text(FOUR_FREE)
    result(run())
    assert told(tmp_path) == ["ray status", "trinity run --config None"]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["variable", "file"])
def test_a_ray_that_is_named_is_used(run: Run, tmp_path: Path, where: str) -> None:
    (tmp_path / "status").write_text(FOUR_FREE)
    overlay = tmp_path / "cluster.yaml"
    overlay.write_text("cluster: {ray_address: '10.0.0.7:6379'}" if where == "file" else "{}")
    variables = {"RAY_ADDRESS": "10.0.0.7:6379"} if where == "variable" else {}
    result(run("trainer.yaml", "--overlay", str(overlay), **variables))
    assert told(tmp_path) == ["ray status", "trinity run --config 10.0.0.7:6379"]

    (tmp_path / "status").unlink()
    code, said = result(run("trainer.yaml", "--overlay", str(overlay), **variables))
    assert code == 2
    assert "no Ray answers at 10.0.0.7:6379" in said


def test_a_ray_without_enough_free_gpus_is_refused_in_place_of_waiting_for_ever(run: Run, tmp_path: Path) -> None:
    (tmp_path / "status").write_text(FOUR_FREE.replace("0.0/4.0", "3.0/4.0"))
    code, said = result(run("trainer.yaml"))
    assert code == 2
    assert "1 of its 4 GPUs free, and cluster asks for 4" in said


@pytest.mark.slow
def test_several_nodes_need_a_ray_that_is_there(run: Run, tmp_path: Path) -> None:
    overlay = tmp_path / "nodes.yaml"
    overlay.write_text("cluster: {node_num: 2}")
    code, said = result(run("trainer.yaml", "--overlay", str(overlay)))
    assert code == 2
    assert "cluster.node_num: expected 1 where no Ray runs, found 2" in said


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("steps", "code", "message"),
    [
        (None, 3, "training ended before its end"),
        (9, 3, "training ended before its end"),
        (10, 0, "training has finished"),
    ],
)
def test_the_exit_code_tells_a_finished_training_from_a_quiet_night(
    run: Run, tmp_path: Path, steps: int | None, code: int, message: str
) -> None:
    overlay = tmp_path / "steps.yaml"
    overlay.write_text("trainer: {total_steps: 10}")
    if steps is not None:
        meta = tmp_path / "checkpoints/slipstream/policy/trainer_meta.json"
        meta.parent.mkdir(parents=True)
        meta.write_text(f'{{"latest_iteration": {steps}}}')
    found, said = result(run("trainer.yaml", "--overlay", str(overlay)))
    assert (found, message in said) == (code, True), said


@pytest.mark.slow
@pytest.mark.parametrize("held", [False, True])
def test_full_checkpoints_of_before_a_restart_are_deleted_while_the_job_is_held(
    run: Run, tmp_path: Path, held: bool
) -> None:
    job = tmp_path / "checkpoints" / "slipstream" / "policy"
    for step in range(16, 16 * 8, 16):
        (job / f"global_step_{step}").mkdir(parents=True)
        (job / f"global_step_{step}" / ".full_checkpoint").touch()
    for marker in (RESUME_MARKER, VERSION_MARKER):
        (job / marker).write_text("112")
    with trainer_lock(job) if held else contextlib.nullcontext():
        said = result(run("trainer.yaml"))[1]
    assert sorted(steps(job)) == ([16, 32, 48, 64, 80, 96, 112] if held else [48, 64, 80, 96, 112])
    assert ("old full checkpoints deleted" in said) is not held


@pytest.mark.slow
def test_trinitys_own_failure_is_told(run: Run) -> None:
    code, said = result(run("trainer.yaml", behaviour="1"))
    assert code == 1
    assert "Trinity failed" in said


@pytest.mark.slow
def test_print_shows_the_file_and_runs_nothing(run: Run, tmp_path: Path) -> None:
    overlay = ROOT / "overlays/postgresql.yaml"
    code, said = result(run("trainer.yaml", "--overlay", str(overlay), "--print", BUFFER_URL="postgresql://db/x"))
    assert code == 0
    assert yaml.safe_load(said)["buffer"]["trainer_input"]["experience_buffer"]["path"] == "postgresql://db/x"
    assert told(tmp_path) == []


@pytest.mark.slow
def test_what_is_printed_is_what_was_read(monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path) -> None:
    monkeypatch.setenv("MODEL_PATH", "/model")
    monkeypatch.setenv("CHECKPOINT_ROOT_DIR", str(tmp_path / "checkpoints"))
    _, said = result(run("trainer.yaml", "--print"))
    assert yaml.safe_load(said) == load_document(ROOT / "trainer.yaml")


@pytest.mark.parametrize("mode", ["serve", "train"])
def test_an_explorer_that_would_answer_without_its_adapters_is_refused(
    mode: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever trains adapters for something else may."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    document = {"mode": mode, "model": {"lora_configs": [{"lora_rank": 8}]}, "checkpoint_root_dir": str(tmp_path)}
    expected = "model.lora_configs: expected none" if mode == "serve" else "no `trinity` on PATH"
    with pytest.raises(SlipstreamError, match=expected):
        launch(document, {})


@pytest.mark.slow
def test_a_file_of_another_mode_is_refused(run: Run, tmp_path: Path) -> None:
    overlay = tmp_path / "both.yaml"
    overlay.write_text("mode: both")
    code, said = result(run("trainer.yaml", "--overlay", str(overlay)))
    assert (code, "mode: expected serve" in said) == (2, True)


def test_without_trinity_it_is_said_how_it_is_installed(run: Run, tmp_path: Path) -> None:
    code, said = result(run(PATH=str(tmp_path / "nothing")))
    assert code == 2
    command = "pip install --no-deps -r deploy/docker/constraints-trinity.txt"
    assert command in said, "pip finds no solution for the extra itself"
    assert command in (ROOT / "docs" / "trinity.md").read_text(encoding="utf-8")
