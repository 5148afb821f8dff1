"""Programs that the slow tier needs and `make install` does not bring: from Debian, if they are missing."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def installed(package: str, *names: str) -> str:
    """The path of a program that has one of these names.

    Fails, and does not skip, where there is none and it cannot be installed: what is marked slow must run.
    """
    if (found := _found(names)) is not None:
        return found
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.fail(f"needs {names[0]}; on Debian: apt-get install {package}")
    script = f"apt-get update -qq && apt-get install -qq -y --no-install-recommends {package}"
    subprocess.run(["sh", "-c", script], check=True, capture_output=True)
    return _found(names) or pytest.fail(f"{names[0]} is not there after the installation of {package}")


def _found(names: tuple[str, ...]) -> str | None:
    return next((path for name in names if (path := shutil.which(name))), None)
