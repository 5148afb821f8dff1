"""The form of API keys, and how to make one.

A key has 256 random bits, so that its plain SHA-256 is all that needs to be kept: a slow hash, as for passwords, would
protect nothing more, and would cost each request some milliseconds.
"""

from __future__ import annotations

import hashlib
import re
import secrets

PREFIX = b"slp_"

KEY = re.compile(rb"(?<![A-Za-z0-9_-])slp_[A-Za-z0-9_-]{32,}")
"""A key of ours, wherever it stands."""


def new_key() -> str:
    """A fresh key: `slp_` and 43 letters, digits, `-` and `_`."""
    return PREFIX.decode() + secrets.token_urlsafe(32)


def digest(key: bytes) -> bytes:
    """Return the 32 bytes that are stored instead of a key."""
    return hashlib.sha256(key).digest()


def as_hash(key: str) -> str:
    """Return the hash of a key as `access.keys` takes it: `sha256:` and 64 hexadecimal digits."""
    return f"sha256:{digest(key.encode()).hex()}"
