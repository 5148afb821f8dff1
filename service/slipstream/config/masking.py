"""Texts of a configuration without what can be a secret."""

from __future__ import annotations

import re

from slipstream.redaction.kinds import without_secrets

MASK = "***"
"""Stands in the place of a secret."""

SECRET_NAME = re.compile(r"key|token|secret|password|authorization|headers|cookie|credential", re.IGNORECASE)
"""Found in names of values that may be secrets."""

_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]*@")
_PARAMETER = re.compile(r"(?<=[?&])([^=&#\s]+)=([^&#\s]*)")


def masked(text: str) -> str:
    """A text with `MASK` in the place of credentials in URLs and of parameters of URLs whose names say that they are
    secrets, and without all that looks like a key or a password."""
    text = _CREDENTIALS.sub(f"{MASK}@", text)
    text = _PARAMETER.sub(lambda found: f"{found[1]}={MASK}" if SECRET_NAME.search(found[1]) else found[0], text)
    return without_secrets(text)
