"""The Dockerfiles: linted, and everything that they copy, pin and start is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from composed import ROOT, instructions
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

DOCKERFILES = sorted((ROOT / "deploy" / "docker").glob("*.Dockerfile"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DOCS = sorted((ROOT / "docs").glob("*.md"))
each_image = pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)


def last_stage(dockerfile: Path) -> list[tuple[str, str]]:
    found = instructions(dockerfile)
    start = max(place for place, (name, _) in enumerate(found) if name == "FROM")
    return found[start:]


def values(dockerfile: Path, wanted: str) -> list[str]:
    return [rest for name, rest in last_stage(dockerfile) if name == wanted]


@each_image
def test_hadolint_has_nothing_to_say(dockerfile: Path) -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [linter, "--failure-threshold=style", dockerfile], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@each_image
def test_every_copied_file_exists_and_reaches_the_builder(dockerfile: Path) -> None:
    ignored, *allowed = (
        line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")
    )
    assert ignored == "*"
    sources = [
        source
        for name, rest in instructions(dockerfile)
        if name == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in allowed, f"{source}: kept from the builder by .dockerignore"


@each_image
def test_it_runs_as_nobody_in_particular_in_exec_form(dockerfile: Path) -> None:
    assert values(dockerfile, "USER") == ["10001:10001"]
    [entrypoint], [command] = values(dockerfile, "ENTRYPOINT"), values(dockerfile, "CMD")
    assert json.loads(entrypoint) == ["slipstream"]
    subcommand = json.loads(command)[0]
    [check] = values(dockerfile, "HEALTHCHECK")
    assert json.loads(check.partition(" CMD ")[2])[0] == "python"
    done = subprocess.run(
        [sys.executable, "-m", "slipstream", subcommand, "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@each_image
def test_base_and_labels_are_said(dockerfile: Path) -> None:
    [base] = {rest for name, rest in instructions(dockerfile) if name == "ARG" and rest.startswith("BASE=")}
    base, _, digest = base.partition("@")
    assert re.fullmatch(r"BASE=python:3\.\d+\.\d+-slim-\w+", base)
    assert re.fullmatch(r"|sha256:[0-9a-f]{64}", digest)
    [labels] = values(dockerfile, "LABEL")
    said = dict(re.findall(r'org\.opencontainers\.image\.([\w.]+)="([^"]*)"', labels))
    assert said["base.name"].endswith(base.removeprefix("BASE="))
    assert said["licenses"] == PROJECT["license"]
    assert said.keys() >= {"title", "description", "version", "revision"}
    [version] = {rest for rest in values(dockerfile, "ARG") if rest.startswith("VERSION=")}
    assert version == f"VERSION={PROJECT['version']}"


@pytest.mark.parametrize(
    ("pins", "extra"), [("constraints.txt", "embedded"), ("deploy/docker/constraints-trinity.txt", "trinity")]
)
def test_what_an_image_installs_is_pinned(pins: str, extra: str) -> None:
    lines = [line.partition(" #")[0].strip() for line in (ROOT / pins).read_text().splitlines()]
    pinned = {
        canonicalize_name(requirement.name): requirement.specifier
        for requirement in map(Requirement, (line for line in lines if line and not line.startswith("#")))
    }
    for wanted in map(Requirement, [*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]]):
        exact = pinned[canonicalize_name(wanted.name)]
        [version] = [each.version for each in exact if each.operator == "=="]
        assert wanted.specifier.contains(version, prereleases=True), wanted


def test_the_extras_that_the_pages_name_for_an_image_have_a_lock() -> None:
    """The chart's page has the one of PostgreSQL, which it tells to take as a store."""
    named = {path.name: re.findall(r'EXTRAS="([\w ]+)"', path.read_text(encoding="utf-8")) for path in DOCS}
    for page, builds in named.items():
        assert all((ROOT / "locks" / f"{extra}.txt").is_file() for build in builds for extra in build.split()), page
    [build] = re.findall(r"docker build .*sidecar\.Dockerfile .*", (ROOT / "docs" / "kubernetes.md").read_text())
    assert '--build-arg EXTRAS="postgres"' in build
