"""What both distributions say of themselves, before they are built; the rest is in tests/distributions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
FOLDERS = {"slipstream-sidecar": ROOT, "slipstream-sidecar-client": ROOT / "client"}


def project(name: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((FOLDERS[name] / "pyproject.toml").read_text())
    return found


@pytest.mark.parametrize("name", FOLDERS)
def test_a_distribution_says_who_made_it_where_it_lives_and_where_it_runs(name: str) -> None:
    about = project(name)["project"]
    assert about["name"] == name
    assert about["authors"] == [{"name": "The Slipstream authors"}]
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= set(about["urls"])
    assert {url.removesuffix("/").split("/")[2] for url in about["urls"].values()} == {"github.com"}
    assert about["keywords"]
    assert "Typing :: Typed" in about["classifiers"]
    listed = [found[1] for one in about["classifiers"] if (found := re.fullmatch(r".*:: (3\.\d+)", one))]
    supported = SpecifierSet(about["requires-python"])
    known = [f"3.{minor}" for minor in range(8, 14)]
    assert listed == [version for version in known if version in supported]


def test_both_live_at_one_address_under_one_version() -> None:
    one, other = (project(name)["project"] for name in FOLDERS)
    assert one["urls"] == other["urls"]
    assert one["version"] == other["version"]


def test_nothing_names_the_stranger_on_the_index() -> None:
    """`slipstream-client` there is another program; the changelog says so."""
    found = []
    for folder in ("client", "service", "docs", "deploy", "examples", "benchmarks", "tests"):
        for path in (ROOT / folder).rglob("*"):
            text = path.suffix in {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".sh", ".Dockerfile", ".js", ".mjs"}
            if text and path != Path(__file__) and re.search(r"slipstream-client\b", path.read_text()):
                found.append(str(path.relative_to(ROOT)))
    assert found == []


def test_the_images_build_with_what_the_projects_are_built_with() -> None:
    needed = {
        re.split(r"[<>=]", requirement)[0]
        for name in FOLDERS
        for requirement in project(name)["build-system"]["requires"]
    }
    locked = re.findall(r"^([\w-]+)==", (ROOT / "locks" / "build.txt").read_text(), re.MULTILINE)
    assert needed <= set(locked)
    for path in (ROOT / "deploy" / "docker").glob("*.Dockerfile"):
        assert "pip install --require-hashes --requirement locks/build.txt" in path.read_text(), path.name
