"""Ends what a supervisor leaves behind when it is killed and cannot end it itself.

`python -m slipstream.local.guard` reads `+PID` and `-PID` lines on stdin: process groups to look after, and to forget.
When stdin closes, which the operating system sees to however the supervisor ends, it ends the groups that are left. A
pipe works on Linux and macOS, reaches grandchildren through the group, and asks nothing of the children; Linux's
PR_SET_PDEATHSIG does neither, and would need code between fork and exec.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable

# Long enough to finish a training step's write or to drain a sidecar, short enough that a restart by hand finds
# the ports free.
GRACE = 10.0


def main(lines: Iterable[str] = sys.stdin, grace: float = GRACE) -> None:
    groups: set[int] = set()
    for line in lines:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    alive = {group for group in groups if _send(group, signal.SIGTERM)}
    deadline = time.monotonic() + grace
    while alive and time.monotonic() < deadline:
        time.sleep(0.05)
        alive = {group for group in alive if _send(group, 0)}
    for group in alive:
        _send(group, signal.SIGKILL)


def _send(group: int, number: int) -> bool:
    """Send a signal to the group; return whether it was there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS refuses the groups of zombies
        os.killpg(group, number)
        return True
    return False


if __name__ == "__main__":
    main()
