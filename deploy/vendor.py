"""The libraries of the page, from npm into `service/slipstream/web/static/vendor/`.

    python deploy/vendor.py            # what the lock names, checked against npm's integrity hashes
    python deploy/vendor.py --check    # only compare: exit code 1 if a file differs

`vendor.lock.json` names the packages with npm's own hash of each archive, and the files that are taken out of it with
the hash of what stands here. A browser has no import map under our Content-Security-Policy, so imports by name are
rewritten to paths, and a script that is no module gets an export; the lock says which.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "service" / "slipstream" / "web" / "static" / "vendor"
LOCK = FOLDER.parent.parent / "vendor.lock.json"


def archive(name: str, version: str, integrity: str) -> bytes:
    """The package's archive.

    Raises:
        SystemExit: it is not the one that the lock names.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", f"{name}@{version}", "--silent", "--pack-destination", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - the lock is ours
        [path] = Path(folder).iterdir()
        content = path.read_bytes()
    found = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
    if found != integrity:
        sys.exit(f"{name} {version}: expected an archive with {integrity}, found {found}")
    return content


def taken(package: dict[str, Any], content: bytes) -> dict[str, bytes]:
    """The files of a package, by their path in the vendor folder."""
    made = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as files:
        for path, file in package["files"].items():
            member = files.extractfile("package/" + file["from"])
            assert member is not None
            text = member.read().decode()
            for old, new in file.get("rewrite", {}).items():
                assert old in text, f"{path}: {old!r} is not there"
                text = text.replace(old, new)
            made[path] = (text + file.get("append", "")).encode()
    return made


def sha256(content: bytes) -> str:
    """The hash as the lock writes it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content).digest()).decode()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    lock = json.loads(LOCK.read_text())
    different = []
    for name, package in lock["packages"].items():
        content = archive(name, package["version"], package["integrity"])
        for path, made in taken(package, content).items():
            target = FOLDER / path
            if check:
                if (
                    not target.exists()
                    or target.read_bytes() != made
                    or package["files"][path]["sha256"] != sha256(made)
                ):
                    different.append(path)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(made)
            package["files"][path]["sha256"] = sha256(made)
    if not check:
        LOCK.write_text(json.dumps(lock, indent=2) + "\n")
    for path in different:
        print(f"{path}: differs from what the lock names")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
