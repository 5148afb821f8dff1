"""Both distributions, built as for the package index: what is in them, what they say of themselves, their installation.

Run by `make test-dist`, which sets up `.dist-venv`.
"""

from __future__ import annotations

import email
import email.message
import re
import subprocess
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".dist-venv" / "bin"

SERVICE, CLIENT = "slipstream_sidecar", "slipstream_sidecar_client"
SOURCES = {SERVICE: ("service", "slipstream"), CLIENT: ("client", "slipstream_client")}
"""Of each distribution: its folder, and its package in there."""


def run(*command: object, cwd: Path = ROOT) -> str:
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make dist` makes; it fails where `twine check --strict` does."""
    folder = tmp_path_factory.mktemp("dist")
    printed = run("make", "dist", f"DIST={folder}")
    assert printed.count("PASSED") == 4
    return folder


def wheel(built: Path, name: str) -> zipfile.ZipFile:
    [path] = built.glob(f"{name}-*.whl")
    return zipfile.ZipFile(path)


def metadata(built: Path, name: str) -> email.message.Message:
    archive = wheel(built, name)
    [path] = [path for path in archive.namelist() if path.endswith(".dist-info/METADATA")]
    return email.message_from_bytes(archive.read(path))


@pytest.mark.parametrize("name", SOURCES)
def test_the_wheel_has_every_file_of_the_package(name: str, built: Path) -> None:
    folder, package = SOURCES[name]
    tracked = set(run("git", "ls-files", package, cwd=ROOT / folder).split())
    found = set(wheel(built, name).namelist())
    assert tracked
    assert tracked - found == set()
    assert f"{package}/py.typed" in found
    assert any(path.endswith(".dist-info/licenses/LICENSE") for path in found)
    strange = {path for path in found - tracked if not re.match(rf"{name}-[^/]+\.dist-info/|{package}/starter/", path)}
    assert strange == set()


def test_the_sidecars_wheel_has_what_it_runs_with(built: Path) -> None:
    found = wheel(built, SERVICE).namelist()
    versions = [path for path in found if re.match(r"slipstream/store/migrations/versions/\w+\.py", path)]
    assert len(versions) == len(list((ROOT / "service/slipstream/store/migrations/versions").glob("[!_]*.py")))
    assert {"explorer.yaml", "trainer.yaml", "sidecar.yaml"} <= {
        path.removeprefix("slipstream/starter/") for path in found if path.startswith("slipstream/starter/")
    }
    [scripts] = [path for path in found if path.endswith("entry_points.txt")]
    assert "slipstream = slipstream.cli:main" in wheel(built, SERVICE).read(scripts).decode()


@pytest.mark.parametrize("name", SOURCES)
def test_the_source_distribution_has_its_licence_and_nothing_of_a_working_copy(name: str, built: Path) -> None:
    [path] = built.glob(f"{name}-*.tar.gz")
    with tarfile.open(path) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "PKG-INFO"} <= found
    assert not [name for name in found if re.search(r"(^|/)(\.venv|\.cache|__pycache__|tests|dist)(/|$)|\.db$", name)]


@pytest.mark.parametrize("name", SOURCES)
def test_the_page_on_the_index_stands_by_itself(name: str, built: Path) -> None:
    about = metadata(built, name)
    assert about["Description-Content-Type"] == "text/markdown"
    page = about.get_payload()
    assert isinstance(page, str)
    targets = re.findall(r"\]\(([^)\s]+)\)", page)
    assert len(targets) > 3
    for target in targets:
        assert re.match(r"https://|#", target), target
        assert "/../" not in target
        ours = re.match(r"https://(?:raw\.githubusercontent\.com|github\.com)/slipstream-sidecar/(.+)", target)
        if ours:
            path = re.fullmatch(r"slipstream/(?:(?:blob|tree)/)?main/([^#]+)(#.*)?", ours[1])
            assert path is not None, target
            assert (ROOT / path[1]).exists(), target
    for image in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page):
        assert image.startswith("https://raw.githubusercontent.com/"), "a page about an image is no image"


@pytest.mark.parametrize("name", SOURCES)
def test_uv_builds_them_too(name: str, tmp_path: Path) -> None:
    folder = ROOT if name == SERVICE else ROOT / "client"
    run(TOOLS / "uv", "build", "--out-dir", tmp_path, folder)
    assert len([*tmp_path.glob(f"{name}-*.whl"), *tmp_path.glob(f"{name}-*.tar.gz")]) == 2


HELP = """
import importlib.metadata, pydoc, sys, slipstream_client as s
text = pydoc.plain(pydoc.render_doc(s))
print("TrainingRunner" in text, "tune_prompt" in text, importlib.metadata.version("slipstream-sidecar-client"))
with s.mark("a"): s.http_client().close()
print(sorted({"fastapi", "torch", "slipstream"} & sys.modules.keys()))
"""


@pytest.mark.parametrize("extra", ["", "[openai]", "[anthropic]"])
def test_the_client_works_with_what_it_asks_for_alone(extra: str, built: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    [path] = built.glob(f"{CLIENT}-*.whl")
    run(python, "-m", "pip", "install", "--quiet", f"{path}{extra}")
    version = tomllib.loads((ROOT / "client/pyproject.toml").read_text())["project"]["version"]
    assert run(python, "-c", HELP, cwd=tmp_path).splitlines() == [f"True False {version}", "[]"]
    run(python, "-m", "pip", "check")
