"""Structured logs: one line an event, on stderr, from our own code and from the libraries alike.

A line carries `timestamp`, `level`, `logger`, `event` and the event's own fields; `task_id` and `run_id` come from
`structlog.contextvars.bound_contextvars(task_id=..., run_id=...)` around the work that they name.

Bodies are not logged by our code, and libraries are heard from `warning` up only, because at lower levels several of
them print statements, headers and payloads. Secrets are not logged either; `mask` is the last defence where one gets
into a message after all.
"""

from __future__ import annotations

import logging
import math
import re
import sys
from collections.abc import Mapping, Sequence, Set
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from slipstream.redaction.kinds import without_secrets

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["json", "console"]

MASK = "***"

_SECRET_KEYS = ("authorization", "api_key", "apikey", "token", "secret", "password", "credential", "cookie")
_CONTROLS = {code: ascii(chr(code))[1:-1] for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}
_URL_PASSWORD = re.compile(r"(://[^\s:/@]{0,64}):[^\s/@]{1,256}@")


def configure(level: Level = "info", format: Format = "json") -> None:  # noqa: A002 - the word of the option
    """Set up logging for this process; the last call counts.

    Args:
        level: the lowest level of our own events that is shown.
        format: `json` for machines, one object a line; `console` for people, coloured on a terminal only.
    """
    renderer: list[Processor]
    if format == "json":
        renderer = [structlog.processors.JSONRenderer(ensure_ascii=False)]
    else:
        # The formatter's own tracebacks would show local variables: bodies, headers, keys.
        console = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
        renderer = [on_one_line, console]
    handler = _ToStderr()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.stdlib.add_logger_name,
                structlog.stdlib.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.format_exc_info,
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                mask,
                *renderer,
            ]
        )
    )
    structlog.configure(
        processors=[structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("slipstream").setLevel(level.upper())
    logging.captureWarnings(True)


class _ToStderr(logging.StreamHandler[TextIO]):
    """Write to the standard error of the moment: `output.py` replaces it for a time."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def on_one_line(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """A structlog processor: an id that somebody chose can neither begin a line nor command a terminal."""
    return {
        name: value.translate(_CONTROLS) if isinstance(value, str) and name not in ("exception", "stack") else value
        for name, value in event.items()
    }


def mask(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """A structlog processor: secrets out, and nothing but plain JSON values left.

    A field is masked when its name ends as a secret's does; numbers stay, so that token counts are readable.
    """
    return {name: _masked(name, value) for name, value in event.items()}


def _masked(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if name.lower().replace("-", "_").endswith(_SECRET_KEYS):
        return MASK
    if isinstance(value, Mapping):
        return {str(key): _masked(str(key), item) for key, item in value.items()}
    if isinstance(value, Sequence | Set) and not isinstance(value, str | bytes | bytearray):
        return [_masked(name, item) for item in value]
    text = value if isinstance(value, str) else repr(value)
    return _URL_PASSWORD.sub(rf"\1:{MASK}@", without_secrets(text))
