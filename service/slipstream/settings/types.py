"""Types of the values of `sidecar.yaml`: base URLs, database URLs, folders, and variables that may be empty."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, AnyHttpUrl, BeforeValidator, TypeAdapter
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

_HTTP_URL = TypeAdapter(AnyHttpUrl)

_LONGEST_FOLDER = 90
"""Bytes: the path of a Unix socket in it has 107 at most."""


def _base_url(text: str) -> str:
    url = _HTTP_URL.validate_python(text)
    if url.username or url.password:
        raise ValueError("a URL without user name and password")
    if url.query or url.fragment:
        raise ValueError("a URL without query and fragment")
    return text.strip().rstrip("/")


def _database_url(text: str) -> str:
    expected = "a database URL that starts with sqlite+aiosqlite:// or postgresql+asyncpg://"
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise ValueError(expected) from error
    if url.drivername not in ("sqlite+aiosqlite", "postgresql+asyncpg"):
        raise ValueError(expected)
    if url.drivername == "sqlite+aiosqlite" and (url.database or "").startswith("file:"):
        raise ValueError("the path of a SQLite file, such as sqlite+aiosqlite:///slipstream.db, and no SQLite URI")
    return text


def database_url(text: str) -> URL | None:
    """The URL, or None where the text is none."""
    try:
        return make_url(text)
    except (ArgumentError, ValueError):  # the latter of a port that is no number
        return None


def shown_url(text: str) -> str:
    """A database URL without its password. What is none is not shown: a password may be anywhere in it."""
    url = database_url(text)
    if url is None:
        return "no database URL"
    return url.difference_update_query(["password"]).render_as_string(hide_password=True)


def _empty_is_none(value: Any) -> Any:
    return None if value == "" else value


def _folder_of_sockets(value: Any) -> Path | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str | Path) or len(os.fsencode(value)) > _LONGEST_FOLDER:
        raise ValueError(f"the path of a folder, of at most {_LONGEST_FOLDER} bytes")
    return Path(value)


BaseUrl = Annotated[str, AfterValidator(_base_url)]
DatabaseUrl = Annotated[str, AfterValidator(_database_url)]
EmptyIsNone = BeforeValidator(_empty_is_none)  # lets `${NAME:-}` stand for "not given"
FolderOfSockets = Annotated[Path | None, BeforeValidator(_folder_of_sockets)]
