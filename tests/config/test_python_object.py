"""Code of the user's own, named in sidecar.yaml: where it is found, and what is said of code that does not fit."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from ports import free_port
from serving import until

from slipstream.errors import ConfigError
from slipstream.local.supervisor import Child
from slipstream.local.up import children
from slipstream.settings.source import load_settings
from slipstream.user_code import python_object

MODULE = """
import json
from collections.abc import Mapping

LIMIT = 3

def score(run): return 0.5

def two(run, other): return 0.5

def longer(run, limit): return float(len(run.text) > limit)

class Scorer:
    def calculate(self): return 0.5
"""


@pytest.fixture(autouse=True)
def own_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no test find the modules of another."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(python_object, "_folders", [])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("house_"):
            del sys.modules[name]


@pytest.fixture
def refusal(tmp_path: Path) -> Callable[..., str]:
    """The error of a sidecar.yaml with these lines, beside modules of these names and texts."""

    def refuse(lines: str, **modules: str) -> str:
        for name, text in {"house_rewards": MODULE, **modules}.items():
            (tmp_path / f"{name}.py").write_text(text)
        (tmp_path / "sidecar.yaml").write_text(lines)
        with pytest.raises(ConfigError) as raised:
            load_settings(tmp_path / "sidecar.yaml", {})
        return str(raised.value)

    return refuse


def reward(named: str) -> str:
    return f"rewards: {{calculators: [{{python: {named}}}]}}\n"


def test_a_module_may_lie_beside_the_file_and_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, module in (("conf", "house_beside"), ("work", "house_here")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{module}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path / "work")
    for module in ("house_beside", "house_here"):
        (tmp_path / "conf" / "sidecar.yaml").write_text(reward(f"{module}:score"))
        load_settings(Path("../conf/sidecar.yaml"), {})


def test_a_module_that_is_not_found_is_refused_with_where_it_was_looked_for(
    tmp_path: Path, refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    told = refusal(reward("house_missing:score"))
    assert told.startswith("rewards.calculators.0.python.object: expected a Python object that can be imported; ")
    assert f"found no module house_missing (looked in {tmp_path}, {tmp_path}/elsewhere, the installed packages)" in told


def test_a_module_that_fails_is_refused_with_its_error_and_line(tmp_path: Path, refusal: Callable[..., str]) -> None:
    told = refusal(reward("house_broken:score"), house_broken="\n\nraise RuntimeError('no licence')\n")
    assert "importing house_broken raises RuntimeError: no licence" in told
    assert f"({tmp_path}/house_broken.py, line 3)" in told
    told = refusal(reward("house_needs:score"), house_needs="import house_library\n")
    assert "importing house_needs raises ModuleNotFoundError: No module named 'house_library'" in told
    told = refusal(reward("house_exits:score"), house_exits="raise SystemExit(1)\n")
    assert "importing house_exits raises SystemExit: 1" in told


def test_a_name_that_the_module_lacks_is_refused_with_the_file_and_the_nearest_name(
    tmp_path: Path, refusal: Callable[..., str]
) -> None:
    told = refusal(reward("house_rewards:scoer"))
    assert f"found no scoer in the module house_rewards ({tmp_path}/house_rewards.py), which has score" in told


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (reward("house_rewards:LIMIT"), "expected a function, an object with `calculate`, or a class of such objects"),
        (reward("house_rewards:two"), "expected Python code that takes a run; found two(run, other): missing"),
        (
            reward("{object: 'house_rewards:longer', params: {limt: 3}}"),
            "expected Python code that takes a run and params limt; found longer(run, limit): ",
        ),
        ("selection: {python: 'house_rewards:two'}", "expected Python code that takes a task; found two(run, other)"),
        (
            "capture: {redact: [{python: 'house_rewards:two'}]}",
            "expected Python code that takes a text; found two(run, other)",
        ),
        ("capture: {redact: [{python: 'house_rewards:LIMIT'}]}", "expected python: a function; found"),
    ],
)
def test_an_object_that_cannot_be_called_so_is_refused(lines: str, told: str, refusal: Callable[..., str]) -> None:
    assert told in refusal(lines)


@pytest.mark.parametrize(
    "lines",
    [
        reward("house_raises:score"),
        "selection: {python: 'house_raises:two'}",
        "capture: {redact: [{python: 'house_raises:x'}]}",
    ],
)
def test_a_reader_that_must_not_wait_for_code_of_users_imports_none(tmp_path: Path, lines: str) -> None:
    (tmp_path / "house_raises.py").write_text("raise RuntimeError('imported')\n")
    (tmp_path / "sidecar.yaml").write_text(lines)
    load_settings(tmp_path / "sidecar.yaml", {}, imports=False)
    with pytest.raises(ConfigError, match="importing house_raises raises RuntimeError: imported"):
        load_settings(tmp_path / "sidecar.yaml", {})


def test_a_reader_that_imports_nothing_refuses_what_is_no_name(tmp_path: Path) -> None:
    (tmp_path / "sidecar.yaml").write_text(reward("os.path"))
    with pytest.raises(ConfigError, match=r"a Python object as package\.module:Object"):
        load_settings(tmp_path / "sidecar.yaml", {}, imports=False)


@pytest.mark.slow
async def test_the_sidecar_that_up_starts_finds_the_module_that_up_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    (tmp_path / "house_rewards.py").write_text(MODULE)
    (tmp_path / "sidecar.yaml").write_text(
        f"listen: 127.0.0.1:{port}\nexplorer: {{base_url: 'http://127.0.0.1:9'}}\n{reward('house_rewards:score')}"
    )
    engine = f"checkpoint_root_dir: {tmp_path}\nmodel: {{model_path: some/model, max_model_len: 512}}\n"
    for name, mode in (("explorer.yaml", "serve"), ("trainer.yaml", "train")):
        (tmp_path / name).write_text(f"{engine}mode: {mode}\n")
    monkeypatch.chdir(tmp_path)
    *_, child = children(Path("sidecar.yaml"), Path("explorer.yaml"), Path("trainer.yaml"))
    await _ready(child)


async def _ready(child: Child) -> None:
    process = await asyncio.create_subprocess_exec(*child.command, stderr=asyncio.subprocess.PIPE)
    url = child.ready_url
    assert url
    assert process.stderr
    try:
        async with httpx.AsyncClient(trust_env=False) as client:

            async def answers() -> bool:
                assert process.returncode is None, (await process.stderr.read()).decode()  # type: ignore[union-attr]
                try:
                    return (await client.get(url)).is_success
                except httpx.TransportError:
                    return False

            await until(answers, 60)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()
