"""The files of the page, as they are sent: read once, each with its type, its tag and a packed copy."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}

START = "index.html"

POLICY: Mapping[str, str] = {
    # Texts of users and agents are shown beside buttons that decide what users get: nothing but these files may run,
    # and no text can become markup (Trusted Types without a policy). An image in an answer is not loaded.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",  # a browser asks by the tag each time, so that an upgrade is seen at once
}
"""Headers of each file."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of the page.

    Attributes:
        packed: the content by gzip.
        tag: its ETag, quoted.
    """

    content: bytes
    packed: bytes
    kind: str
    tag: str


@lru_cache(maxsize=1)
def page_files() -> Mapping[str, File]:
    """The files of the page, by their path below `static/`."""
    return {path: _file(path, content) for path, content in _walk(files("slipstream.web").joinpath("static"))}


def _walk(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for each in sorted(folder.iterdir(), key=lambda one: one.name):
        if each.is_dir():
            yield from _walk(each, f"{prefix}{each.name}/")
        elif PurePosixPath(each.name).suffix in _TYPES:
            yield prefix + each.name, each.read_bytes()


def _file(path: str, content: bytes) -> File:
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return File(content, gzip.compress(content, 9, mtime=0), _TYPES[PurePosixPath(path).suffix], tag)
