"""Checks of capture: what is captured, and whether it is kept."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy.engine import make_url

from slipstream.doctor.files import Files
from slipstream.doctor.findings import Finding, Problem

_LEAST_STORE = 64 * 1024**2
"""Bytes: an empty SQLite store, with as much of its log as a little traffic makes, takes half of it."""
_MIB = 1024**2

STORE_TOO_SMALL = Problem(
    "files.store_too_small",
    "error",
    why="An empty SQLite store takes about as much with its log, and one of PostgreSQL is full after some thousands of "
    "calls: nothing is captured.",
    fix="A `limits.store_bytes` of 64 MiB or more; mostly many times that (docs/limits.md).",
)
STORE_IN_MEMORY = Problem(
    "files.store_in_memory",
    "error",
    why="What the sidecar has acknowledged, feedback above all, is lost with its process.",
    fix="`store.url` with a file: sqlite+aiosqlite:////absolute/path.db (four slashes); or PostgreSQL.",
)
BODY_BEYOND_QUEUE = Problem(
    "files.body_beyond_queue",
    "warning",
    why="A call that is larger than all that may wait for the store is never captured, whatever `capture.max_body` "
    "says.",
    fix="A `capture.queue_bytes` of several times `capture.max_body`.",
)
NOTHING_REDACTED = Problem(
    "files.nothing_redacted",
    "warning",
    why="Keys and tokens that stand in conversations are stored, given to judges and webhooks, and trained on.",
    fix="`capture.redact: [api_key, password]`, and what else must not be kept (docs/configuration.md).",
)


def store(files: Files) -> Iterator[Finding]:
    url, limit = make_url(files.sidecar.store.url), files.sidecar.limits.store_bytes
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        yield STORE_IN_MEMORY.at(files.in_sidecar("store.url"), files.sidecar.store.url)
    if limit < _LEAST_STORE:
        yield STORE_TOO_SMALL.at(files.in_sidecar("limits.store_bytes"), f"{limit / _MIB:.3g} MiB")


def bodies(files: Files) -> Iterator[Finding]:
    capture = files.sidecar.capture
    if capture.max_body > capture.queue_bytes:
        found = f"{capture.max_body / _MIB:.3g} MiB; capture.queue_bytes is {capture.queue_bytes / _MIB:.3g} MiB"
        yield BODY_BEYOND_QUEUE.at(files.in_sidecar("capture.max_body"), found)
    if not capture.redact:
        yield NOTHING_REDACTED.at(files.in_sidecar("capture.redact"), "an empty list")
