"""The seconds that each part of an orderly end may take. Whoever ends a process waits for all of its parts."""

from __future__ import annotations

ANSWERS = 20.0
"""A worker of the proxy: answers that are under way. One endless stream must not prevent the end."""

HAND_OVER = 5.0
"""A worker, after that: the training side takes what was captured."""

STAGE = 20.0
"""The training side, three times: the steps under way, then the runs, then the last commit. What does not fit goes on
after the next start."""

TRACES = 1.0
"""The training side, at its very end: the last spans go to the collector."""

WORKER = ANSWERS + HAND_OVER + 1.0
TRAINING = 3 * STAGE + TRACES + 1.0
LOG = 2.0
"""The process that writes the log, and after it the parent: the last lines, if they are read."""

SIDECAR = WORKER + TRAINING + LOG
"""First the workers, then the training side, then the log. In containers of their own, each half has as much as its
part and the log take."""

REPLACED_ANSWERS = 3600.0
"""A worker whose successor takes the connections: answers that are under way. Nothing waits for its end."""

REPLACED_HAND_OVER = 120.0
"""The same worker, after that: the next training side may start at that moment."""
