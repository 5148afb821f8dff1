"""Greenlets of gevent carry the context of the code that spawns them; jobs of its pools of threads that of the caller.

A greenlet begins with no context variables, not even with a copy of the spawner's, as asyncio's tasks have.
"""

from __future__ import annotations

import importlib
import sys
from contextvars import Context
from typing import Any

from slipstream_client.context import enter, handle
from slipstream_client.patching import Patch, Wrapping


class Greenlets:
    """The part of `instrument_threads` for gevent, if the program has imported it by then.

    Args:
        submit: wraps the method by which gevent's pools of threads take a job.
    """

    def __init__(self, submit: Wrapping) -> None:
        self._submit = submit
        self._pool: Patch | None = None

    def install(self) -> None:
        if "gevent" not in sys.modules:
            return
        if self._pool is None:
            self._pool = Patch(importlib.import_module("gevent.threadpool").ThreadPool, "spawn", self._submit)
        self._pool.install()
        importlib.import_module("gevent").Greenlet.add_spawn_callback(_carry)

    def remove(self) -> None:
        if self._pool is None:
            return
        self._pool.remove()
        importlib.import_module("gevent").Greenlet.remove_spawn_callback(_carry)


def _carry(greenlet: Any) -> None:
    """Give a greenlet that is about to start the scope of the code that starts it."""
    scope = handle()
    if scope is not None and greenlet.gr_context is None:  # else the program has given it a context, which has ours
        greenlet.gr_context = Context()
        greenlet.gr_context.run(enter, scope)
