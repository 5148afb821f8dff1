"""The answer while the store takes no writes, or cannot be read."""

from __future__ import annotations

import structlog
from fastapi import Request
from fastapi.responses import JSONResponse

from slipstream.api.passing import RETRY_AFTER
from slipstream.errors import error_body

_log = structlog.get_logger(__name__)


async def store_failed(request: Request, error: Exception) -> JSONResponse:
    """Nothing was stored, so nothing is acknowledged."""
    _log.error("store_failed", path=request.url.path, error=repr(error))
    return JSONResponse(
        error_body("the store does not take writes at the moment; try again", kind="server_error", code="store_failed"),
        503,
        headers=RETRY_AFTER[503],
    )
