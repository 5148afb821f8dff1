"""The form of a key for `store.encryption_key`. Apart from the cipher, which the proxy's workers have no use for."""

from __future__ import annotations

import base64
import binascii


def read_key(text: str) -> bytes:
    """A key from its text.

    Raises:
        ValueError: it is not 32 bytes in base64.
    """
    try:
        key = base64.b64decode(text.strip().replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != 32:
        raise ValueError("32 random bytes in base64, as `openssl rand -base64 32` makes them")
    return key
