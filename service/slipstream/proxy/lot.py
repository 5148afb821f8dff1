"""The lot of a conversation: a number that each of its calls has, known before anything of a call is copied.

It decides which conversations `capture.rate` takes, so it must be the same for all calls of one: in each worker, in
each sidecar, and after a restart. It is drawn by the first of these that there is:

1. the session that a header names, else the task;
2. the user, as the headers of `access.identity_headers` name it: all conversations of a user have one lot;
3. the conversation that the provider holds, by its id;
4. who asks, and the first user's words.

A caller who knows this can work out a lot, and choose its words by it. For a sample that does not matter: a caller who
wants to be left out says so by a header, and one who wants to be taken can name many sessions. It protects nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from xxhash import xxh3_64_intdigest as _digest

from slipstream.dialects.beginning import beginning
from slipstream.dialects.form import Dialect
from slipstream.http.headers import Headers
from slipstream.http.known_names import KnownNames
from slipstream.proxy.consent import CONSENT, may_capture

_SEED = 0x736C_6970_6C6F_7431
"""Fixed, and used for nothing else: selection and other shares of the same conversations are independent of the lot."""

_UNIT = 2.0**-53
"""53 bits are what a float holds exactly."""

_CONSENT, _SESSION, _TASK, _ENCODING, _CREDENTIALS, _IDENTITY = range(1, 7)
"""Kinds of header fields; 0 for all others."""

_KINDS = {
    **dict.fromkeys(CONSENT, _CONSENT),
    b"x-slipstream-session-id": _SESSION,
    b"x-slipstream-task-id": _TASK,
    b"content-encoding": _ENCODING,
    **dict.fromkeys((b"authorization", b"api-key", b"x-api-key", b"x-goog-api-key"), _CREDENTIALS),
}


class NoLot(Enum):
    """The reason why a lot cannot be told.

    REFUSED: the caller does not want its call to be captured.
    MORE: more of the body is needed.
    COMPRESSED: the body is compressed.
    HELD: the call goes on from an answer that the provider holds, and has the lot of that answer's call.
    """

    REFUSED = "refused"
    MORE = "more"
    COMPRESSED = "compressed"
    HELD = "held"


class Lots:
    """Tells the lots of calls.

    Args:
        identity_headers: by which users are told apart, in lower case.
        seed: another one gives lots that are independent of these.
    """

    def __init__(self, identity_headers: Sequence[str] = (), seed: int = _SEED) -> None:
        self._seed = seed
        users = {name.encode(): _IDENTITY + place for place, name in enumerate(identity_headers)}
        kinds = _KINDS | users
        self._kind_of = KnownNames(lambda name: kinds.get(name, 0))
        self._owners: dict[tuple[str, str | None], int] = {}
        """Seeds by tenant and name of the key, which are few."""

    def of(
        self, dialect: Dialect, headers: Headers, body: bytes, whole: bool, tenant: str, key: str | None
    ) -> float | NoLot:
        """The lot of a call, in [0, 1): evenly spread over many conversations. Pure, and takes any headers and body.

        Args:
            body: what there is of it.
            whole: nothing comes after it.
            tenant, key: whose call it is, and the name of its key of ours.
        """
        number = self.number(dialect, headers, body, whole, tenant, key)
        return (number >> 11) * _UNIT if isinstance(number, int) else number

    def number(
        self, dialect: Dialect, headers: Headers, body: bytes, whole: bool, tenant: str, key: str | None
    ) -> int | NoLot:
        """The 64 bits of hash from which `of` makes the lot."""
        kind_of = self._kind_of
        session = task = encoding = credentials = b""
        users: list[bytes] = []
        for name, value in headers:
            kind = kind_of[name]
            if not kind:
                continue
            if kind == _CREDENTIALS:
                credentials += value
            elif kind == _CONSENT:
                if not may_capture(headers):
                    return NoLot.REFUSED
            elif kind == _SESSION:
                session = session or value.strip()
            elif kind == _TASK:
                task = task or value.strip()
            elif kind == _ENCODING:
                encoding = value.strip().lower()
            elif value := value.strip():
                users.append(b"%d %b" % (kind, value))
        if session or task or users:
            what = b"session" if session else b"task" if task else b"user"
            return _digest(session or task or b"\n".join(sorted(users)), _digest(what, self._owner(tenant, None)))
        if encoding and encoding != b"identity":
            return NoLot.COMPRESSED
        words = beginning(dialect, body, whole=whole)
        if isinstance(words, bytes):
            owner = self._owners.get((tenant, key)) or self._owner(tenant, key)
            return _digest(words, _digest(credentials, owner))
        if words is None:
            return NoLot.MORE
        if words.conversation is None:
            return NoLot.HELD
        return _digest(words.conversation.encode(), _digest(b"conversation", self._owner(tenant, None)))

    def _owner(self, tenant: str, key: str | None) -> int:
        seed = self._owners.get((tenant, key))
        if seed is None:
            seed = self._owners[tenant, key] = _digest(f"{tenant}\n{key or ''}".encode(), self._seed)
        return seed
