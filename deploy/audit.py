"""Known vulnerabilities of pinned packages, as the OSV database lists them.

    python deploy/audit.py constraints.txt

One request for all of them, where pip-audit makes one for each. Exit code 1: there is one that is not accepted. Where
the database cannot be asked, that is a warning, and nothing is said about the packages.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx
from packaging.requirements import Requirement

ACCEPTED: Mapping[str, str] = {}
"""Ids of advisories that do not touch this project, each with the reason."""

_TIMEOUT = httpx.Timeout(30, connect=5)


def pins(text: str) -> list[tuple[str, str]]:
    """Name and version of each `name==version` line."""
    found = []
    for line in text.splitlines():
        if stripped := line.partition("#")[0].strip():
            requirement = Requirement(stripped)
            found.append((requirement.name, next(iter(requirement.specifier)).version))
    return found


def advisories(packages: Sequence[tuple[str, str]], service: str) -> list[tuple[str, str, str]]:
    """Name, version and advisory's id of each known vulnerability.

    Raises:
        httpx.HTTPError: the database did not answer.
        ValueError: what it answered is no list of results, one for each package.
    """
    queries = [{"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in packages]
    answer = httpx.post(f"{service}/v1/querybatch", json={"queries": queries}, timeout=_TIMEOUT).raise_for_status()
    body = answer.json()
    results = body.get("results") if isinstance(body, dict) else None
    if not isinstance(results, list) or len(results) != len(packages):
        raise ValueError("no result for each package")
    return [
        (name, version, str(found["id"]))
        for (name, version), result in zip(packages, results, strict=True)
        for found in (result or {}).get("vulns", ())
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("constraints", type=Path)
    parser.add_argument("--service", default="https://api.osv.dev")
    arguments = parser.parse_args()
    packages = pins(arguments.constraints.read_text())
    try:
        found = advisories(packages, arguments.service)
    except (httpx.HTTPError, ValueError) as error:
        print(
            f"warning: {len(packages)} packages NOT audited: {arguments.service} did not answer ({error})",
            file=sys.stderr,
        )
        return 0
    open_ones = [each for each in found if each[2] not in ACCEPTED]
    for name, version, advisory in open_ones:
        print(f"{name} {version}: https://osv.dev/vulnerability/{advisory}", file=sys.stderr)
    print(f"{len(packages)} packages audited: {len(open_ones)} advisories, {len(found) - len(open_ones)} accepted")
    return 1 if open_ones else 0


if __name__ == "__main__":
    sys.exit(main())
