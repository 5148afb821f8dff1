"""The `slipstream` command as a user types it, and its documentation."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from ports import free_port
from typer.main import get_command

from slipstream import __version__
from slipstream.cli import app
from slipstream.embedded.config import load_config
from slipstream.errors import ConfigError
from slipstream.local.up import children, trained

ROOT = Path(__file__).parents[1]

# As on a machine where the extra was not installed.
WITHOUT_EMBEDDED = """
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "trl", "peft", "datasets", "gguf"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from slipstream.cli import main
main()
"""


def slipstream(*arguments: str, cwd: Path | None = None, embedded: bool = True) -> subprocess.CompletedProcess[str]:
    how = ["-m", "slipstream"] if embedded else ["-c", WITHOUT_EMBEDDED]
    return subprocess.run(
        [sys.executable, *how, *arguments], capture_output=True, text=True, timeout=120, cwd=cwd, check=False
    )


def test_the_version() -> None:
    run = slipstream("--version")
    assert (run.returncode, run.stdout.strip(), run.stderr) == (0, __version__, "")


def test_help_names_every_command() -> None:
    text = slipstream("--help").stdout
    for name in ("serve", "explorer", "trainer", "up", "model", "status"):
        assert re.search(rf"\b{name}\b", text)


def commands(command: Any, path: tuple[str, ...] = ("slipstream",)) -> Iterator[tuple[str, Any]]:
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*path, name))
    if not hasattr(command, "commands") or (command.invoke_without_command and path != ("slipstream",)):
        yield " ".join(path), command


def test_every_command_and_option_is_documented() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `slipstream")]
    root = get_command(app)
    for name, command in commands(root):
        [row, *_] = [line for line in rows if line.startswith(f"| `{name} ")]  # its own, then those of its subcommands
        for parameter in command.params:
            assert parameter.opts[0] in row or (parameter.metavar or "smollm2") in row
    for parameter in root.params:
        assert parameter.opts[0] in text


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("serve", "--config", "missing.yaml"), "missing.yaml"),
        (("serve", "--config", "wrong.yaml"), "runs.repeat_time"),
        (("explorer", "--config", "missing.yaml"), "missing.yaml"),
        (("trainer", "--config", "missing.yaml"), "missing.yaml"),
        (("up", "--sidecar", "wrong.yaml"), "runs.repeat_time"),
        (("model", "fetch", "gpt-9", "model"), "gpt-9"),
    ],
)
def test_a_known_error_is_one_message_and_exit_code_2(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("runs: {repeat_time: none}\n")
    run = slipstream(*arguments, cwd=tmp_path)
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.startswith("slipstream: ")
    assert message in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("arguments", [("serv",), ("serve", "--port", "1"), ("--log-level", "loud", "serve"), ()])
def test_bad_usage_exits_with_2(arguments: tuple[str, ...]) -> None:
    run = slipstream(*arguments)
    assert run.returncode == 2
    assert "Usage: slipstream" in run.stdout + run.stderr


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "arguments",
    [
        ("explorer", "--config", "e.yaml"),
        ("trainer", "--config", "t.yaml"),
        ("up",),
        ("model", "fetch", "smollm2", "m"),
    ],
)
def test_without_the_embedded_extra_its_commands_say_how_to_install_it(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    run = slipstream(*arguments, cwd=tmp_path, embedded=False)
    assert run.returncode == 2
    assert "pip install torch --index-url https://download.pytorch.org/whl/cpu" in run.stderr
    assert "pip install 'slipstream-sidecar[embedded]'" in run.stderr
    assert "Traceback" not in run.stderr


def test_serve_needs_no_embedded_extra_and_ends_with_0_when_told_to(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "sidecar.yaml").write_text(
        f"listen: 127.0.0.1:{port}\n"
        "production: {base_url: http://127.0.0.1:9/v1}\n"
        "explorer: {base_url: http://127.0.0.1:9}\n"
        "store: {url: sqlite+aiosqlite:///store.db}\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_EMBEDDED, "serve"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    try:
        assert answers(f"http://127.0.0.1:{port}/healthz", process)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_serve_says_in_one_message_that_it_cannot_have_its_port_or_its_store(tmp_path: Path) -> None:
    config = "listen: 127.0.0.1:{port}\nexplorer: {{base_url: http://127.0.0.1:9}}\nstore: {{url: '{store}'}}\n"
    store = "sqlite+aiosqlite:///store.db"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "taken.yaml").write_text(config.format(port=port, store=store))
        run = slipstream("serve", "--config", "taken.yaml", cwd=tmp_path)
    assert (run.returncode, "Traceback" in run.stderr) == (2, False)
    assert f"listen: expected an address that is free on this machine, found 127.0.0.1:{port}" in run.stderr
    assert not (tmp_path / "store.db").exists(), "the store was not touched"

    (tmp_path / "folder.db").mkdir()
    unusable = "sqlite+aiosqlite:///folder.db"
    (tmp_path / "unusable.yaml").write_text(config.format(port=0, store=unusable))
    run = slipstream("serve", "--config", "unusable.yaml", cwd=tmp_path)
    assert (run.returncode, "Traceback" in run.stderr) == (2, False)
    assert "store.url: expected a store that can be opened and written" in run.stderr


@pytest.mark.slow
def test_a_second_sidecar_on_the_same_sqlite_store_does_not_start(tmp_path: Path) -> None:
    port = free_port()
    for name, listen in (("first.yaml", port), ("second.yaml", 0)):
        (tmp_path / name).write_text(
            f"listen: 127.0.0.1:{listen}\n"
            "explorer: {base_url: http://127.0.0.1:9}\n"
            "store: {url: sqlite+aiosqlite:///store.db}\n"
        )
    first = subprocess.Popen(
        [sys.executable, "-m", "slipstream", "serve", "--config", "first.yaml"], cwd=tmp_path, stderr=subprocess.PIPE
    )
    try:
        assert answers(f"http://127.0.0.1:{port}/readyz", first)
        second = slipstream("serve", "--config", "second.yaml", cwd=tmp_path)
        assert second.returncode == 2
        assert "store.url: expected a store of this sidecar alone" in second.stderr
    finally:
        first.kill()
        first.communicate()


def answers(url: str, process: subprocess.Popen[str], within: float = 60.0) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline and process.poll() is None:
        try:
            return httpx.get(url, trust_env=False).is_success
        except httpx.TransportError:
            time.sleep(0.05)
    return False


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """sidecar.yaml, explorer.yaml and trainer.yaml that are right."""
    engine = f"project: p\ngroup: g\nname: n\ncheckpoint_root_dir: {tmp_path}\n"
    engine += "model: {model_path: some/model, max_model_len: 512}\n"
    texts = {
        "sidecar.yaml": "{listen: 0.0.0.0:8123, access: {insecure: true}}\n",
        "explorer.yaml": engine + "mode: serve\nexplorer: {proxy_port: 8456}\n",
        "trainer.yaml": engine + "mode: train\ntrainer: {total_steps: 3}\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    sidecar, explorer, trainer = (tmp_path / name for name in texts)
    return sidecar, explorer, trainer


def test_up_runs_explorer_trainer_and_sidecar_in_this_order(files: tuple[Path, Path, Path]) -> None:
    sidecar, explorer, trainer = files
    found = children(sidecar, explorer, trainer, ("--log-level", "debug"))
    assert [(child.name, child.ready_url) for child in found] == [
        ("explorer", "http://127.0.0.1:8456/health"),
        ("trainer", None),
        ("sidecar", "http://127.0.0.1:8123/readyz"),
    ]
    ends = [tuple(child.command[-5:]) for child in found]
    assert ends == [
        ("--log-level", "debug", "explorer", "--config", str(explorer)),
        ("--log-level", "debug", "trainer", "--config", str(trainer)),
        ("--log-level", "debug", "serve", "--config", str(sidecar)),
    ]


def test_up_asks_the_sidecar_at_its_own_port_whether_it_is_ready_if_it_can(files: tuple[Path, Path, Path]) -> None:
    tls = "certificate: cert.pem, key: key.pem"
    for listen, url in (
        (f"{{port: 8443, tls: {{{tls}}}}}", "https://127.0.0.1:8443/readyz"),
        (f"{{port: 8443, tls: {{{tls}, client_ca: ca.pem}}}}", None),
        ("127.0.0.1:0", None),
        ('"[::1]:8100"', "http://[::1]:8100/readyz"),
    ):
        files[0].write_text(f"listen: {listen}\n")
        assert children(*files)[-1].ready_url == url


def test_up_hands_its_overlays_to_explorer_and_trainer(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    port, steps = tmp_path / "port.yaml", tmp_path / "steps.yaml"
    port.write_text("explorer: {proxy_port: 8999}")
    steps.write_text("trainer: {total_steps: 7}")
    explorer, trainer, sidecar = children(*files, overlays=(port, steps))
    assert explorer.ready_url == "http://127.0.0.1:8999/health"
    given = ("--overlay", str(port), "--overlay", str(steps))
    assert tuple(explorer.command[-4:]) == tuple(trainer.command[-4:]) == given
    assert "--overlay" not in sidecar.command


def lane_of(directory: Path, url: str = "http://127.0.0.1:8765/v1", mode: str = "on") -> str:
    lane = f"{{base_url: '{url}', directory: '{directory}'}}"
    return f"access: {{insecure: true}}\nserving: {{mode: {mode}, lane: {lane}}}\n"


def test_up_runs_a_lane_that_follows_its_own_directory_and_records_nothing(
    files: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    directory = tmp_path / "lanes" / "first"
    files[0].write_text(lane_of(directory))
    steps = tmp_path / "steps.yaml"
    steps.write_text(
        "explorer: {rollout_model: {dtype: float32}}\nbuffer: {trainer_input: {experience_buffer: {path: sqlite:///p.db}}}"
    )
    _, _, lane, _ = children(*files, overlays=(steps,))
    assert (lane.name, lane.ready_url, lane.vital) == ("lane", "http://127.0.0.1:8765/health", False)
    own = directory / "lane.yaml"
    assert tuple(lane.command[-6:]) == ("--config", str(files[1]), "--overlay", str(steps), "--overlay", str(own))
    config, policy = load_config(files[1], "serve", (steps, own)), load_config(files[1], "serve", (steps,))
    assert config.job_dir == directory
    assert config.database_url == f"sqlite:///{directory}/buffer/embedded_experience_buffer.db"
    assert config.explorer.rollout_model.dtype == "float32", "what else the files say holds for the lane too"
    assert (config.explorer.record_experiences, policy.explorer.record_experiences) == (False, True)


def test_up_runs_no_lane_where_serving_is_off_or_the_lane_is_switched_by_hand(
    files: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    for text in (
        lane_of(tmp_path / "lanes" / "first", mode="off"),
        "access: {insecure: true}\nserving: {mode: on, lane: {base_url: http://127.0.0.1:8765/v1}}\n",
    ):
        files[0].write_text(text)
        assert [child.name for child in children(*files)] == ["explorer", "trainer", "sidecar"]
    assert not (tmp_path / "lanes").exists()


def test_up_refuses_a_lane_of_another_machine(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    files[0].write_text(lane_of(tmp_path / "lanes" / "first", "http://gpu-2:8765/v1"))
    with pytest.raises(ConfigError, match=r"^serving\.lane\.base_url: expected http://127\.0\.0\.1:PORT/v1.*gpu-2"):
        children(*files)


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_up_refuses_a_wrong_file_before_anything_runs(files: tuple[Path, Path, Path], wrong: int) -> None:
    files[wrong].write_text("mode: neither\n")
    with pytest.raises(ConfigError):
        children(*files)


def test_a_trainer_has_finished_when_total_steps_are_reached_and_not_before(files: tuple[Path, Path, Path]) -> None:
    config = load_config(files[2], "train")
    meta = config.job_dir / "trainer_meta.json"
    assert not trained(config)
    meta.parent.mkdir(parents=True)
    meta.write_text('{"latest_iteration": 2}')
    assert not trained(config)
    meta.write_text('{"latest_iteration": 3}')
    assert trained(config)
    endless = config.model_copy(update={"trainer": config.trainer.model_copy(update={"total_steps": None})})
    assert not trained(endless)


@pytest.mark.slow
def test_a_fault_of_the_program_shows_its_traceback_and_exits_with_1(tmp_path: Path) -> None:
    program = "from slipstream.local import up\ndef fail(*_): raise RuntimeError('a bug')\nup.children = fail\n"
    program += "import sys; sys.argv = ['slipstream', 'up']\nfrom slipstream.cli import main; main()"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 1
    assert "Traceback" in run.stderr
    assert "RuntimeError: a bug" in run.stderr


@pytest.mark.slow
def test_python_settings_may_name_a_module_in_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "house_rules.py").write_text(
        "from slipstream.errors import ConfigError\nraise ConfigError('house rules were read')\n"
    )
    (tmp_path / "sidecar.yaml").write_text("selection: {python: 'house_rules:Strategy'}\n")
    run = slipstream("serve", cwd=tmp_path)
    assert "house rules were read" in run.stderr
    assert os.fspath(tmp_path) not in run.stdout
