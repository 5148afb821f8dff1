"""The scope of a request: what its caller may reach, and which things of a tenant it names."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import Depends, Header, Request
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.access.scope import HEADER, Scope, read_scope
from slipstream.errors import RequestError
from slipstream.store.audit import Author
from slipstream.store.feedback import Kind
from slipstream.store.tenancy import with_one_named
from slipstream.tenants import DEFAULT, NAME, qualified

TENANT = "x-slipstream-tenant"
"""Header by which a key that reaches all tenants says which one is meant."""

_Tenant = Annotated[
    str | None,
    Header(
        alias=TENANT,
        pattern=NAME,
        description="Only with an admin or operator key without a tenant: whose sessions, tasks and answers are meant.",
    ),
]


def _scope(request: Request, tenant: _Tenant = None) -> Scope:
    scope = read_scope(request.headers.getlist(HEADER))
    if tenant in (None, scope.tenant):
        return scope
    if scope.tenant is not None:
        text = f"{TENANT}: this key is of the tenant {scope.tenant}; "
        text += "only an admin or operator key without one may name another"
        raise RequestError(text, param=TENANT, status=403, code="slipstream_tenant_forbidden")
    return msgspec.structs.replace(scope, tenant=tenant)


ScopeDep = Annotated[Scope, Depends(_scope)]
"""The scope of the caller's key, narrowed by the header `x-slipstream-tenant` if the key reaches all tenants."""


def author(scope: Scope) -> Author:
    """The key and the tenant that a write is noted under in the audit."""
    return Author(scope.key, scope.tenant)


def require_all_tenants(scope: Scope, why: str) -> None:
    """
    Args:
        why: the beginning of the refusal.

    Raises:
        RequestError: 403, the key is of one tenant, and what is asked for is of all of them.
    """
    if scope.tenant is not None:
        text = f"{why}; this key is of the tenant {scope.tenant}: "
        text += "use a key without one that has the role admin or operator"
        raise RequestError(text, status=403, code="slipstream_tenant_forbidden")


async def reference(session: AsyncSession, scope: Scope, kind: Kind, name: str) -> str:
    """The id in the store of what a caller names. One whose key reaches all tenants means the one that has it.

    Raises:
        RequestError: 409, several have it.
    """
    if scope.tenant is not None:
        return qualified(scope.tenant, name)
    tenants = await with_one_named(session, kind, name)
    if len(tenants) > 1:
        text = f"{kind}: several tenants have {name!r} ({', '.join(tenants)}); say which in the header {TENANT}"
        raise RequestError(text, param=kind, status=409, code="several_tenants")
    return qualified(tenants[0] if tenants else DEFAULT, name)
