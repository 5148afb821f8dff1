"""What a key looks like, and how one is made.

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
    """What is kept of a key: 32 bytes."""
    return hashlib.sha256(key).digest()


def as_hash(key: str) -> str:
    """What `hash` says of a key in `access.keys`: `sha256:` and 64 hexadecimal digits."""
    return f"sha256:{digest(key.encode()).hex()}"
