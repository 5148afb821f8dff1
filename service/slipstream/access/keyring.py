"""The keys that are valid now: those of the configuration, and those of a file that is read again when it changes."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

from slipstream.access.keys import digest
from slipstream.access.scope import Scope
from slipstream.access.settings import Access, ApiKey, ApiKeys, Role
from slipstream.config.problems import describe
from slipstream.config.yaml_text import read_yaml
from slipstream.errors import ConfigError
from slipstream.tenants import DEFAULT

_log = structlog.get_logger(__name__)

_LOOK_AFTER = 1.0
"""Seconds: what is taken out of the file is refused so soon; and looking costs some microseconds a second."""

_CROSSING: frozenset[Role] = frozenset({"admin", "operator"})
"""Roles of a key without a tenant that reach all of them. An operator decides which version answers everybody."""

_TOLD_REASONS: frozenset[Role] = frozenset({"admin", "metrics"})

_Seen = tuple[int, int, int, int] | None


@dataclass(frozen=True, slots=True)
class Key:
    """A valid key, by its hash alone.

    Attributes:
        from_file: it is in `access.keys_file`, and not in `access.keys`.
    """

    name: str
    roles: frozenset[Role]
    digest: bytes
    scope: Scope
    capture: bool
    requests_per_minute: int | None
    expires: float | None
    """Unix seconds."""
    from_file: bool


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    keys: ApiKeys


class Keyring:
    """
    Args:
        clock: seconds, of any beginning.

    Raises:
        ConfigError: the file cannot be used. Later that is logged, and the keys stay as they were.
    """

    def __init__(self, access: Access, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = access.keys_file
        self._own = _keys(access.keys)
        self._clock = clock
        self._look_at = clock() + _LOOK_AFTER
        self._seen = None if self._path is None else _mark(self._path)
        self._keys = self._own if self._path is None else self._with_those_of(self._path)

    def now(self) -> tuple[Key, ...]:
        """The keys that are valid now."""
        if self._path is not None and self._clock() >= self._look_at:
            self._look_at = self._clock() + _LOOK_AFTER
            self._look(self._path)
        return self._keys

    def holder(self, key: bytes) -> Key | None:
        """The one whose key this is. Takes as long for any key: each is compared, and to its end."""
        given, found = digest(key), None
        for each in self.now():
            if hmac.compare_digest(each.digest, given):
                found = each
        return found

    def _look(self, path: Path) -> None:
        seen = _mark(path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._keys = self._with_those_of(path)
        except ConfigError as error:
            _log.error("keys_file_not_read", problems=error.problems, valid="the keys that were valid before")
            return
        _log.info("keys_file_read", keys=[key.name for key in self._keys])

    def _with_those_of(self, path: Path) -> tuple[Key, ...]:
        """The configuration's keys and the file's.

        Raises:
            ConfigError: with a line for each problem.
        """
        tree = read_yaml(path)
        if not isinstance(tree, list):
            raise ConfigError(f"access.keys_file: expected a list of keys in {path}, or [] for none; found no list")
        try:
            read = _File.model_validate({"keys": tree}).keys
        except ValidationError as error:
            raise ConfigError(*(f"access.keys_file: {path}: {line}" for line in describe(error, _File, {}))) from None
        return (*self._own, *_keys(read, from_file=True))


def _keys(given: ApiKeys, *, from_file: bool = False) -> tuple[Key, ...]:
    return tuple(
        Key(
            name=each.name,
            roles=frozenset(each.roles),
            digest=bytes.fromhex(each.hash.removeprefix("sha256:")),
            scope=_scope(each),
            capture=each.capture,
            requests_per_minute=each.requests_per_minute,
            expires=None if each.expires is None else each.expires.timestamp(),
            from_file=from_file,
        )
        for each in given
    )


def _scope(key: ApiKey) -> Scope:
    roles = frozenset(key.roles)
    of_all = key.tenant is None and not roles.isdisjoint(_CROSSING)
    return Scope(
        None if of_all else key.tenant or DEFAULT,
        content="admin" in roles,
        reasons=not roles.isdisjoint(_TOLD_REASONS),
        key=key.name,
    )


def _mark(path: Path) -> _Seen:
    """Return a value that changes with the file or with the right to read it: Kubernetes swaps a link, editors write
    another file or the same one, and an operator may repair the rights of a file that could not be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
