"""Signatures by which the receiver of a webhook knows who sent it, in the form of Standard Webhooks 1.0.

Its own lines because the package `standardwebhooks` brings an HTTP client and three more packages for one HMAC.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Annotated

from pydantic import AfterValidator, SecretStr

_ENCODED = "whsec_"


def signing_key(secret: str) -> bytes:
    """The key that a secret stands for: after `whsec_` in base64, otherwise as it is.

    Raises:
        ValueError: what is behind `whsec_` is no base64, or nothing, with which anybody could sign.
    """
    if not secret.startswith(_ENCODED):
        return secret.encode()
    try:
        key = base64.b64decode(secret.removeprefix(_ENCODED), validate=True)
    except binascii.Error:
        key = b""
    if not key:
        raise ValueError(f"{_ENCODED} and base64 behind it, or another text")
    return key


def _is_a_key(secret: SecretStr) -> SecretStr:
    signing_key(secret.get_secret_value())
    return secret


SigningSecret = Annotated[SecretStr, AfterValidator(_is_a_key)]
"""A secret of the configuration that `signing_key` takes."""


def signed(key: bytes, name: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of a webhook.

    Args:
        name: of what is told; the same for each try to tell it, in ASCII.
        timestamp: Unix seconds.
    """
    digest = hmac.new(key, b"%b.%d.%b" % (name.encode("ascii"), timestamp, body), hashlib.sha256).digest()
    return {
        "webhook-id": name,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
