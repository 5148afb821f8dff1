"""`/session`: sign in to the page and out of it, and see who is signed in.

A key is exchanged for a cookie that no script can read. Whoever has the cookie has the rights of the key, from the page
alone, until the session or the key ends.
"""

from __future__ import annotations

import time
from typing import Any, get_args

from fastapi import APIRouter, Request, Response

from slipstream.access.keyring import Key
from slipstream.access.page_session import cookie_name, hash_of, new_token
from slipstream.access.scope import EVERYTHING, HEADER, Scope, read_scope
from slipstream.access.settings import Role
from slipstream.api.context import SidecarDep
from slipstream.api.page_sessions import signed_in
from slipstream.errors import RequestError
from slipstream.sidecar import Sidecar
from slipstream.store import audit, page_sessions
from slipstream.store.audit import Action, Author, Write
from slipstream.store.page_sessions import PageSession

router = APIRouter(tags=["session"])


@router.post("/session")
async def post_session(request: Request, response: Response, sidecar: SidecarDep) -> dict[str, Any]:
    """Sign in with the key that the request carries: the answer sets a cookie. Without keys everybody is signed in, and
    no cookie is set. A body is not read."""
    scope = _scope(request)
    if scope == EVERYTHING:
        return _told(response, EVERYTHING, ("admin",))
    key = sidecar.keys.with_digest(scope.digest or "")
    if key is None:
        text = "Slipstream: the training side does not know this key, or not yet: it needs the same access as the proxy"
        raise RequestError(text, status=401, code="slipstream_key_unknown")
    now, token = time.time(), new_token()
    expires_at = min(now + sidecar.settings.access.session, key.expires or float("inf"))
    new = PageSession(hash_of(token), key.name, scope.digest or "", expires_at)
    async with sidecar.database.write() as session:
        if scope.session is not None:
            await page_sessions.end(session, scope.session)
        await page_sessions.add(session, new, now)
        await audit.note(session, Write(Action.SIGN_IN, None), Author(key.name, key.scope.tenant), now)
    _set_cookie(request, response, sidecar, token, round(expires_at - now))
    return _of_key(response, key, expires_at)


@router.get("/session")
async def get_session(request: Request, response: Response, sidecar: SidecarDep) -> dict[str, Any]:
    """Show who is signed in, by the cookie or by a key, and with which roles. Anybody may ask."""
    scope = _scope(request)
    if scope == EVERYTHING:
        return _told(response, EVERYTHING, ("admin",))
    if scope.to_be_resolved:
        found = await signed_in(sidecar, scope.session or "", time.time())
        if found is not None:
            return _of_key(response, found.key, found.expires_at)
        _set_cookie(request, response, sidecar, b"", 0)
    key = sidecar.keys.with_digest(scope.digest or "")
    return _signed_out(response) if key is None else _of_key(response, key, key.expires)


@router.delete("/session")
async def delete_session(request: Request, response: Response, sidecar: SidecarDep) -> dict[str, Any]:
    """Sign out: the session of the cookie ends. Where there is none, that is no error."""
    scope = _scope(request)
    if scope == EVERYTHING:
        return _told(response, EVERYTHING, ("admin",))
    if scope.session is not None:
        now = time.time()
        async with sidecar.database.write() as session:
            found = await page_sessions.find(session, scope.session, now)
            await page_sessions.end(session, scope.session)
            if found is not None:
                key = sidecar.keys.with_digest(found.key_digest)
                by = Author(found.key, None if key is None else key.scope.tenant)
                await audit.note(session, Write(Action.SIGN_OUT, None), by, now)
        _set_cookie(request, response, sidecar, b"", 0)
    return _signed_out(response)


def _scope(request: Request) -> Scope:
    return read_scope(request.headers.getlist(HEADER))


def _of_key(response: Response, key: Key, expires_at: float | None) -> dict[str, Any]:
    roles = tuple(role for role in get_args(Role) if role in key.roles)
    return _told(response, key.scope, roles, expires_at)


def _signed_out(response: Response) -> dict[str, Any]:
    return _told(response, None, ())


def _told(
    response: Response, scope: Scope | None, roles: tuple[Role, ...], expires_at: float | None = None
) -> dict[str, Any]:
    response.headers["cache-control"] = "no-store"
    return {
        "signed_in": scope is not None,
        "keys_needed": scope != EVERYTHING,
        "key": None if scope is None else scope.key,
        "roles": list(roles),
        "tenant": None if scope is None else scope.tenant,
        "content": scope is not None and scope.content,
        "expires_at": expires_at,
    }


def _set_cookie(request: Request, response: Response, sidecar: Sidecar, token: bytes, seconds: int) -> None:
    response.set_cookie(
        cookie_name(request.headers.get("host", "").encode("latin-1")).decode(),
        token.decode(),
        max_age=seconds,
        path=None,  # see `page_session`
        secure=_came_by_tls(request, sidecar),
        httponly=True,
        samesite="strict",
    )


def _came_by_tls(request: Request, sidecar: Sidecar) -> bool:
    """Return whether the browser speaks TLS, to this sidecar or to a proxy in front that is trusted to say so."""
    if sidecar.settings.listen.tls is not None:
        return True
    if not sidecar.settings.access.trusted_proxies:
        return False
    said = request.headers.get("x-forwarded-proto", "").split(",")[0].strip().lower()
    return said == "https" or "proto=https" in request.headers.get("forwarded", "").lower().replace('"', "")
