"""Kill a function with SIGKILL at each of its calls of the operating system, one process for each of them.

    python killed_anywhere.py MODULE FUNCTION FOLDER

runs `MODULE.FUNCTION(path)` in a copy of FOLDER, killed at its first event of Python's audit (opening, linking,
renaming, removing, making a folder), then in another one killed at the second, and so on until it comes to its end. It
prints the copies' paths as JSON, in that order; the last one is that of the run which was not killed.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

_EVENTS = {"open", "os.link", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree", "os.chmod", "os.utime"}


def copies_killed_anywhere(module: str, function: str, folder: Path) -> list[Path]:
    """Run it; the copies are beside the folder."""
    command = [sys.executable, __file__, module, function, str(folder)]
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path})
    assert run.returncode == 0, run.stderr
    return [Path(each) for each in json.loads(run.stdout)]


def _main(module: str, function: str, folder: Path) -> None:
    run = getattr(importlib.import_module(module), function)
    copies = []
    for count in range(1, 1000):
        copy = folder.with_name(f"{folder.name}-{count}")
        shutil.copytree(folder, copy)
        copies.append(str(copy))
        child = os.fork()
        if child == 0:
            _kill_at(count)
            run(copy)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0, count
            print(json.dumps(copies))
            return
        assert os.WTERMSIG(status) == signal.SIGKILL
    raise AssertionError("it never comes to its end")


def _kill_at(count: int) -> None:
    left = count

    def hook(event: str, _: object) -> None:
        nonlocal left
        if event in _EVENTS:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
