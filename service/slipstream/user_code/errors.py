"""Log what code of the user's own raises: the traceback of each distinct error once, and a line for each later one."""

from __future__ import annotations

from typing import Any

import structlog

from slipstream.isolation import Raised

_log = structlog.get_logger(__name__)

_MOST_ERRORS = 100
"""Distinct errors that are told apart. Generated code could have a new line number in each."""


class UserErrors:
    """Errors of one piece of the user's code.

    Two errors are the same when they have the same type and come from the same lines of code, whatever they say.

    Args:
        event: the name of the log's line.
    """

    def __init__(self, event: str) -> None:
        self._event = event
        self._seen: set[tuple[object, ...]] = set()

    def log(self, error: Raised, **fields: Any) -> None:
        """Log an error, with its traceback unless an equal one was logged before.

        Its message is left out, because it may quote an answer. A reward calculator's is in the store, redacted.
        """
        if error.place in self._seen or len(self._seen) >= _MOST_ERRORS:
            _log.warning(self._event, error=error.kind, **fields)
        else:
            self._seen.add(error.place)
            told = f"Traceback (most recent call last):\n{error.frames}{error.kind}"
            _log.error(self._event, error=error.kind, exception=told, **fields)
