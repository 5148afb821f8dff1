"""Requests of the page: whose session they come in, and what that one's key may do.

A worker tells what it knows: the hash of the token in the cookie. It has no store, and asks nobody: whether there is
such a session is found out here, before any route is chosen. From then on the request is as one with the key itself.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import msgspec
from fastapi import Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from slipstream.access import scope as access
from slipstream.access.keyring import Key
from slipstream.access.ledger import Book, Ledger
from slipstream.access.page_session import PATH
from slipstream.api.store_failed import store_failed
from slipstream.errors import StoreAway
from slipstream.proxy import rights
from slipstream.proxy.refusal import SESSION_ENDED, Refusal
from slipstream.sidecar import Sidecar
from slipstream.store import page_sessions


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A session that holds.

    Attributes:
        key: the key that it was signed in with, as it is now.
        expires_at: Unix seconds.
    """

    key: Key
    expires_at: float


async def signed_in(sidecar: Sidecar, digest: str, now: float) -> SignedIn | None:
    """The session whose token has this hash; None where it has ended, or its key is not valid any more.

    Raises:
        SQLAlchemyError: the store is away.
    """
    async with sidecar.database.read() as session:
        found = await page_sessions.find(session, digest, now)
    key = None if found is None else sidecar.keys.with_digest(found.key_digest)
    if found is None or key is None or rights.expired(key, now) is not None:
        return None
    return SignedIn(key, found.expires_at)


class PageSessions:
    """Middleware that gives a request in a session the rights of its key, or refuses it."""

    def __init__(self, app: ASGIApp, sidecar: Sidecar) -> None:
        self._app = app
        self._sidecar = sidecar
        self._book = Book(Ledger(1), 0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told = access.read_scope(Headers(scope=scope).getlist(access.HEADER))
        if not told.to_be_resolved:
            await self._app(scope, receive, send)
            return
        path = scope["path"].removeprefix(access.BY_SESSION)
        raw_path = scope["raw_path"].removeprefix(access.BY_SESSION.encode())
        scope = {**scope, "path": path, "raw_path": raw_path}
        try:
            resolved = await self._resolved(told, scope["method"].encode("latin-1"), path)
        except (SQLAlchemyError, OSError, StoreAway) as error:
            await (await store_failed(Request(scope), error))(scope, receive, send)
            return
        if isinstance(resolved, Refusal):
            await _response(resolved)(scope, receive, send)
            return
        headers = [field for field in scope["headers"] if field[0] != access.FIELD]
        headers.append((access.FIELD, access.encode(resolved)))
        await self._app({**scope, "headers": headers}, receive, send)

    async def _resolved(self, told: access.Scope, method: bytes, path: str) -> access.Scope | Refusal:
        if path == PATH:
            return told  # its routes tell of a session that has ended, and end one
        if not self._sidecar.started:
            raise StoreAway("the store is away, and is waited for")
        found = await signed_in(self._sidecar, told.session or "", time.time())
        if found is None:
            return SESSION_ENDED
        refusal = rights.role_missing(found.key, method, path) or rights.too_often(found.key, self._book)
        return refusal or msgspec.structs.replace(found.key.scope, session=told.session)


def _response(refusal: Refusal) -> Response:
    response = Response(refusal.body(), refusal.status, media_type="application/json")
    for line in refusal.fields.splitlines():
        name, _, value = line.partition(b": ")
        response.raw_headers.append((name, value))
    return response
