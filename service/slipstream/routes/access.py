"""Who may use the facade: whoever has `facade.api_key`, where one is set."""

from __future__ import annotations

import base64
import binascii
import hmac

from fastapi import Request

from slipstream.errors import RequestError
from slipstream.routes.context import SidecarDep


async def require_key(request: Request, sidecar: SidecarDep) -> None:
    """Let a request through that has the key, as a Bearer token or as the password of Basic authentication.

    Basic, because a client that knows nothing of keys sends it from its address: `http://trinity:KEY@host/explorer`.

    Raises:
        RequestError: 401.
    """
    key = sidecar.settings.facade.api_key
    if key is None:
        return
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    found = given.strip() if scheme.lower() == "bearer" else _password(given) if scheme.lower() == "basic" else ""
    if not hmac.compare_digest(found.encode(), key.get_secret_value().encode()):
        raise RequestError(
            "the facade wants facade.api_key, as a Bearer token or as the password of Basic authentication",
            status=401,
            code="unauthorized",
        )


def _password(credentials: str) -> str:
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return ""
