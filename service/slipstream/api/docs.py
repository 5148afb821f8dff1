"""`GET /docs`: the control API in the browser, without anything of another host.

Swagger UI comes from the wheel of fastapi-offline, which packs a current one with each release; the page has no script
of its own inline, so that nothing but these files may run in it.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Literal

from fastapi import APIRouter, Response

router = APIRouter(prefix="/docs", include_in_schema=False)

_POLICY = {
    # Swagger UI sets styles of elements, and shows a picture of its own in a data URL
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Slipstream</title><link rel="stylesheet" href="/docs/swagger-ui.css"></head>
<body><div id="ui"></div><script src="/docs/swagger-ui-bundle.js"></script><script src="/docs/start.js"></script></body>
</html>
"""
_START = "SwaggerUIBundle({url: '/openapi.json', dom_id: '#ui', validatorUrl: null});\n"


@router.get("")
async def get_docs() -> Response:
    """The page."""
    return Response(_PAGE, media_type="text/html", headers=_POLICY)


@router.get("/start.js")
async def get_start() -> Response:
    """Answer with the script that starts Swagger UI."""
    return Response(_START, media_type="text/javascript", headers=_POLICY)


@router.get("/{name}")
def get_file(name: Literal["swagger-ui.css", "swagger-ui-bundle.js"]) -> Response:
    """A file of Swagger UI."""
    kind = "text/css" if name.endswith(".css") else "text/javascript"
    content = files("fastapi_offline").joinpath("static", name).read_bytes()
    return Response(content, media_type=kind, headers=_POLICY | {"cache-control": "max-age=86400"})
