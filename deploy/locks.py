"""Lock files: each package that an environment gets, at a pinned version, with the hashes of its files.

    make locks

`pip install --require-hashes --requirement locks/NAME.txt` installs one, and our own package comes behind it with
`--no-deps`. uv resolves. The files name no index, so that any mirror may serve them. The locks of the sidecar leave
torch out: its builds for CPU and for CUDA are of different indexes, and so of different hashes.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = "pyproject.toml"
TORCH = re.compile(r"torch|triton|nvidia-.*|cuda-.*")
"""torch, and what its CUDA build brings."""

_HEAD = "# Made by `make locks`: see deploy/locks.py.\n"
_ENTRY = re.compile(r"^[\w.\[\]-]+==.*(?:\n[ ]+--hash=.*)*", re.MULTILINE)


@dataclass(frozen=True)
class Lock:
    """What a lock is compiled from.

    Args:
        sources: arguments of `uv pip compile`; `-` is the build system of pyproject.toml.
        extras: of pyproject.toml.
        constraints: the file that says which version of each package.
        torch: it is in the lock, as the package index has it.
    """

    sources: tuple[str, ...] = (PROJECT,)
    extras: tuple[str, ...] = ()
    constraints: str | None = "constraints.txt"
    platform: str = "linux"
    torch: bool = False


LOCKS: Mapping[str, Lock] = {
    "sidecar": Lock(),
    "postgres": Lock(extras=("postgres",)),
    "otel": Lock(extras=("otel",)),
    "data": Lock(extras=("data",)),
    "embedded": Lock(extras=("embedded",)),
    "dev": Lock((PROJECT, "client/pyproject.toml", "--extra", "openai"), ("postgres", "otel", "dev")),
    "trinity": Lock(
        extras=("trinity",),
        constraints="deploy/docker/constraints-trinity.txt",
        platform="x86_64-manylinux_2_31",
        torch=True,
    ),
    "build": Lock(("-",), constraints=None),
    "tools": Lock(("deploy/tools.txt",), constraints=None),
}


def here() -> list[str]:
    """The locks of the extras that the project has."""
    return [
        name
        for name, lock in LOCKS.items()
        if set(lock.extras) <= _project()["project"]["optional-dependencies"].keys()
    ]


def entries(text: str) -> dict[str, str]:
    """Each package of a lock with its lines: the version, and the hashes."""
    return {canonicalize_name(Requirement(entry.split(" \\")[0]).name): entry for entry in _ENTRY.findall(text)}


def _project() -> dict[str, dict[str, dict[str, list[str]]]]:
    return tomllib.loads((ROOT / PROJECT).read_text(encoding="utf-8"))


def _compiled(uv: Path, lock: Lock) -> str:
    command = [
        *(str(uv), "pip", "compile", *lock.sources, "--quiet", "--generate-hashes", "--python-version", "3.11"),
        *("--python-platform", lock.platform, "--no-header", "--no-annotate"),
        *("--no-emit-index-url", "--no-emit-find-links"),
        *(word for extra in lock.extras for word in ("--extra", extra)),
        *(() if lock.constraints is None else ("--constraint", lock.constraints)),
    ]
    builds = "\n".join(_project()["build-system"]["requires"])
    done = subprocess.run(command, cwd=ROOT, input=builds, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--uv", type=Path, required=True)
    uv = parser.parse_args().uv
    for name in here():
        lock = LOCKS[name]
        found = entries(_compiled(uv, lock))
        kept = [entry for package, entry in sorted(found.items()) if lock.torch or not TORCH.fullmatch(package)]
        (ROOT / "locks" / f"{name}.txt").write_text(_HEAD + "\n".join(kept) + "\n", encoding="utf-8")
        print(f"locks/{name}.txt: {len(kept)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
