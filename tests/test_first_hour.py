"""The first hour: what `slipstream init` writes, and the page that leads through it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from ports import free_port

from slipstream.doctor.examination import examine
from slipstream.doctor.files import read_files
from slipstream.errors import ConfigError
from slipstream.local.starter import FilesInTheWay, templates, write
from slipstream.local.up import children

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
INSTALL, INIT, UP, CURVE, LOOK = (text for language, text in BLOCKS if language == "sh")
SHARED = ("explorer.yaml", "trainer.yaml", *(f"overlays/{path.name}" for path in (ROOT / "overlays").glob("*.yaml")))
OWN = ("sidecar.yaml", "my_rewards.py", "my_agent.py", "curve.py")


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that `slipstream init` wrote, as the working directory."""
    folder = tmp_path / "first-hour"
    write(folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PWD", str(folder))
    for name in ("MODEL_PATH", "CHECKPOINT_ROOT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield folder
    sys.modules.pop("my_rewards", None)  # the doctor has imported it, and tests after this one have no such module


def test_init_writes_the_repository_s_files(started: Path) -> None:
    written = {str(path.relative_to(started)) for path in started.rglob("*") if path.is_file()}
    assert written == {*SHARED, *OWN}
    for name in SHARED:
        assert (started / name).read_bytes() == (ROOT / name).read_bytes()


def test_init_overwrites_nothing_and_names_what_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "my_rewards.py").write_text("mine")
    (tmp_path / "overlays").mkdir()
    (tmp_path / "overlays" / "ppo.yaml").write_text("mine")
    with pytest.raises(FilesInTheWay, match=r"found my_rewards\.py, overlays/ppo\.yaml$"):
        write(tmp_path)
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"my_rewards.py", "ppo.yaml"}
    assert (tmp_path / "my_rewards.py").read_text() == "mine"


def test_the_doctor_finds_nothing_wrong_with_what_init_writes(started: Path) -> None:
    paths = (Path("sidecar.yaml"), Path("explorer.yaml"), Path("trainer.yaml"))
    assert examine(read_files(*paths, [Path("overlays/quickstart.yaml")], {}), offline=True) == []
    assert (started / "checkpoints").is_dir()


def test_up_serves_production_where_the_sidecar_looks_for_it(started: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = (Path("sidecar.yaml"), Path("explorer.yaml"), Path("trainer.yaml"))
    model = Path("models/smollm2")
    overlays = [Path("overlays/quickstart.yaml")]
    with pytest.raises(ConfigError, match=r"^--production: .*: slipstream model fetch smollm2 models/smollm2$"):
        children(*paths, overlays=overlays, production=model)
    model.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (model / name).write_text("{}")
    production, *others = children(*paths, overlays=overlays, production=model)
    assert production.ready_url == "http://127.0.0.1:8011/health"
    assert tuple(production.command[-5:]) == ("model", "serve", "models/smollm2", "--port", "8011")
    assert [child.name for child in others] == ["explorer", "trainer", "sidecar"]
    monkeypatch.setenv("SLIPSTREAM_PRODUCTION__BASE_URL", "https://api.openai.com/v1")
    with pytest.raises(ConfigError, match=r"^production\.base_url: expected http://127\.0\.0\.1:PORT/v1 with"):
        children(*paths, overlays=overlays, production=model)


def test_the_page_shows_the_files_as_init_writes_them() -> None:
    texts = {name: path.read_text(encoding="utf-8") for name, path in templates().items()}
    shown = [text for language, text in BLOCKS if language in ("python", "yaml")]
    assert texts["my_rewards.py"] in shown
    assert texts["sidecar.yaml"] in shown
    for text in shown:
        assert any(text in whole for whole in texts.values()), text
    named = set(re.findall(r"`([\w./-]+\.(?:py|yaml))`", PAGE))
    assert named <= set(texts)
    assert set(OWN) <= named


def test_what_the_page_installs_is_there_to_be_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [extra] = re.findall(r"'\.\[(\w+)\]'", INSTALL)
    assert extra in project["optional-dependencies"]


@pytest.mark.slow
def test_the_wheel_carries_what_init_writes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(source)], check=True)
    [wheel] = tmp_path.glob("*.whl")
    carried = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("slipstream/starter/")}
    assert carried == {f"slipstream/starter/{name}" for name in (*SHARED, *OWN)}
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    command = [sys.executable, "-P", "-m", "slipstream", "init", "begun"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    for name, path in templates().items():
        assert (tmp_path / "begun" / name).read_bytes() == path.read_bytes()


@pytest.fixture
def environment() -> dict[str, str]:
    """The page's own, with ports that are free, and this Python first on the path."""
    sidecar, explorer, production = free_port(), free_port(), free_port()
    inherited = {name: value for name, value in os.environ.items() if name not in ("MODEL_PATH", "CHECKPOINT_ROOT_DIR")}
    return {
        **inherited,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SLIPSTREAM_LISTEN": f"127.0.0.1:{sidecar}",
        "SLIPSTREAM_PRODUCTION__BASE_URL": f"http://127.0.0.1:{production}/v1",
        "SLIPSTREAM_EXPLORER__BASE_URL": f"http://127.0.0.1:{explorer}",
        "SLIPSTREAM_URL": f"http://127.0.0.1:{sidecar}",
        "EXPLORER_PORT": str(explorer),
        "EXPLORER_URL": f"http://127.0.0.1:{explorer}",
    }


@pytest.mark.slow
def test_the_page_s_commands_lead_to_a_new_version(tmp_path: Path, environment: dict[str, str]) -> None:
    def shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euc", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )

    begun = shell(INIT, tmp_path)
    assert begun.returncode == 0, begun.stderr
    folder = tmp_path / "first-hour"
    with (folder / "up.log").open("w") as log:
        up = subprocess.Popen(["bash", "-euc", f"exec {UP}"], cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            _wait_until_ready(up, environment["SLIPSTREAM_URL"])
            curve = shell(f"{CURVE.strip()} --invoices 4 --every 4 --held-out 2", folder)
            assert curve.returncode == 0, curve.stderr
            assert re.search(r"version 0: reward .*version 1: reward ", curve.stdout, re.DOTALL)
            assert (folder / "curve.png").is_file()
            tasks = httpx.get(f"{environment['SLIPSTREAM_URL']}/tasks?selected=true&limit=1", trust_env=False)
            looked = shell(LOOK.replace("TASK", tasks.json()["tasks"][0]["task_id"]), folder)
            assert looked.returncode == 0, looked.stderr
            assert "reward" in looked.stdout
        finally:
            up.send_signal(signal.SIGTERM)
            up.wait()
    assert up.returncode == 0, (folder / "up.log").read_text()


def _wait_until_ready(up: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        assert up.poll() is None, "slipstream up ended"
        try:
            if httpx.get(f"{url}/readyz", trust_env=False).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    pytest.fail("slipstream up was not ready in time")
