"""`GET /` and `GET /ui/...`: the page of the sidecar, in a browser. It needs no key; what it shows does."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from slipstream.errors import RequestError
from slipstream.web.files import POLICY, START, page_files

router = APIRouter(include_in_schema=False)


@router.get("/")
def get_page(request: Request) -> Response:
    """The page."""
    return _answer(request, START)


@router.get("/ui/{path:path}")
def get_file(path: str, request: Request) -> Response:
    """A file of the page."""
    return _answer(request, path)


def _answer(request: Request, path: str) -> Response:
    file = page_files().get(path)
    if file is None:
        raise RequestError(f"the page has no file {path[:200]!r}", status=404, code="not_found")
    headers = {**POLICY, "etag": file.tag, "vary": "accept-encoding"}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(file.content, media_type=file.kind, headers=headers)
    return Response(file.packed, media_type=file.kind, headers={**headers, "content-encoding": "gzip"})
