"""The lock files: whole, with hashes, of the versions of constraints.txt, and installed as the images install them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from composed import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

sys.path.insert(0, str(ROOT / "deploy"))

import locks

UNFROZEN = {"setuptools"}
"""Packages that `pip freeze`, which makes constraints.txt, leaves out."""

each_lock = pytest.mark.parametrize("name", locks.here())


def versions(text: str) -> dict[str, str]:
    lines = (line.partition("#")[0].rstrip(" \\") for line in text.splitlines())
    found = [Requirement(line) for line in lines if re.match(r"\w", line)]
    return {canonicalize_name(each.name): str(each.specifier) for each in found}


def lock(name: str) -> str:
    return (ROOT / "locks" / f"{name}.txt").read_text(encoding="utf-8")


def test_there_is_one_of_each_and_no_other() -> None:
    assert {path.stem for path in (ROOT / "locks").iterdir()} == set(locks.here())


@each_lock
def test_each_entry_has_hashes_and_no_address_is_in_it(name: str) -> None:
    text = lock(name)
    assert not re.search(r"://|--(extra-)?index-url|--find-links|\bfile:|@", text)
    found = locks.entries(text)
    assert found.keys() == versions(text).keys()
    for package, entry in found.items():
        hashes = entry.splitlines()[1:]
        assert hashes, package
        assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line) for line in hashes), package
    left = re.sub(locks._ENTRY, "", text).splitlines()
    assert all(not line or line.startswith("#") for line in left), "nothing beside the entries"


@each_lock
def test_the_versions_are_those_of_its_constraints(name: str) -> None:
    constraints = locks.LOCKS[name].constraints
    if constraints is None:
        pytest.skip("it has no constraints: the lock itself pins")
    pinned = versions((ROOT / constraints).read_text(encoding="utf-8"))
    differ = {
        package: (version, pinned.get(package))
        for package, version in versions(lock(name)).items()
        if package not in UNFROZEN
    }
    assert {package: pair for package, pair in differ.items() if pair[0] != pair[1]} == {}


@pytest.mark.sampled
@pytest.mark.parametrize("name", [name for name in locks.here() if locks.LOCKS[name].constraints == "constraints.txt"])
def test_it_is_whole(name: str) -> None:
    """What a package of the lock needs is in it, as far as this environment can tell."""
    from test_environments import needs

    found = versions(lock(name))
    for package in found:
        try:
            needed = needs(package)
        except PackageNotFoundError:
            continue
        missing = {each for each in needed - found.keys() if not locks.TORCH.fullmatch(each)}
        assert not missing, f"{package} needs {missing}"


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of locks/tools.txt."""
    return installed(tmp_path_factory.mktemp("tools"), "locks/tools.txt")


def installed(folder: Path, *files: str) -> Path:
    """A fresh environment with these locks, installed as the images do; returns the folder of its programs."""
    run([sys.executable, "-m", "venv", str(folder)])
    run(
        [
            str(folder / "bin" / "pip"),
            "install",
            "-q",
            "--no-deps",
            "--require-hashes",
            *(f"--requirement={file}" for file in files),
        ]
    )
    return folder / "bin"


def run(command: Sequence[str]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=550)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_sidecar_is_installed_from_the_lock_and_starts(tmp_path: Path) -> None:
    build = installed(tmp_path / "build", "locks/build.txt")
    wheels = str(tmp_path / "wheel")
    run([str(build / "pip"), "wheel", "-q", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, "."])
    [wheel] = (tmp_path / "wheel").glob("*.whl")
    sidecar = installed(tmp_path / "sidecar", "locks/sidecar.txt", "locks/postgres.txt")
    run([str(sidecar / "pip"), "install", "-q", "--no-deps", str(wheel)])
    run([str(sidecar / "pip"), "check"])
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run([str(sidecar / "slipstream"), "--version"]).strip() == version
    run([str(sidecar / "python"), "-c", "import slipstream.serve.app, slipstream.sidecar, asyncpg"])


@pytest.mark.slow
def test_a_file_with_another_hash_is_not_installed(tmp_path: Path) -> None:
    entry = locks.entries(lock("sidecar"))["aiosqlite"]
    forged = re.sub(r"sha256:.", lambda found: "sha256:" + ("0" if found[0][-1] != "0" else "1"), entry)
    (tmp_path / "forged.txt").write_text(forged)
    run([sys.executable, "-m", "venv", str(tmp_path / "venv")])
    command = [
        str(tmp_path / "venv" / "bin" / "pip"),
        "install",
        "--require-hashes",
        "-r",
        str(tmp_path / "forged.txt"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "DO NOT MATCH THE HASHES" in done.stderr) == (1, True), done.stderr


@pytest.mark.slow
def test_the_bill_of_materials_is_of_its_schema_and_names_each_package(tools: Path, tmp_path: Path) -> None:
    run(["make", "sbom", f"DIST={tmp_path}", f"LOCKS_VENV={tools.parent}", f"LOCKS_INSTALLED={tools / 'python'}"])
    made = sorted((tmp_path / "sbom").iterdir())
    assert {path.name for path in made} == {
        f"{name}.cdx.json" for name in ("sidecar", "postgres", "otel", "data", "embedded", "trinity")
    }
    check = (
        "import sys\n"
        "from cyclonedx.schema import SchemaVersion\n"
        "from cyclonedx.validation.json import JsonStrictValidator\n"
        "problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())\n"
        "sys.exit(str(problem) if problem else 0)"
    )
    for path in made:
        run([str(tools / "python"), "-c", check, str(path)])
        components = json.loads(path.read_text())["components"]
        expected = versions(lock(path.name.partition(".")[0]))
        assert {canonicalize_name(each["name"]): f"=={each['version']}" for each in components} == expected
        assert all(each["externalReferences"][0]["hashes"] for each in components)
