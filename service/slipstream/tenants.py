"""Tenants, and the ids in the store of what is theirs.

Sessions, tasks and answers are known by ids that agents and production choose, so that two tenants may choose the same.
In the store each has its tenant before it: `tenant=acme/chat-7`. So two of them are never the same row, whatever query
asks for it. What is the default tenant's keeps its id as it is, but for one that looks like another tenant's.
"""

from __future__ import annotations

DEFAULT = "default"
"""The tenant of keys that name none, and of all that is captured where no key is asked for."""

NAME = r"^[A-Za-z0-9._-]{1,64}$"
"""Form of a tenant's name."""

_MARK = "tenant="

LONGEST_PREFIX = len(_MARK) + 64 + 1
"""Characters that an id in the store has more than the id that it stands for, at most."""


def qualified(tenant: str, name: str) -> str:
    """The id in the store of what this tenant calls by this name."""
    if tenant == DEFAULT and not name.startswith(_MARK):
        return name
    return f"{_MARK}{tenant}/{name}"


def split(ref: str) -> tuple[str, str]:
    """The tenant of an id in the store, and the name that the tenant knows it by."""
    if not ref.startswith(_MARK):
        return DEFAULT, ref
    tenant, _, name = ref[len(_MARK) :].partition("/")
    return tenant, name


def tenant_of(ref: str) -> str:
    """The tenant of an id in the store."""
    return split(ref)[0]


def name_of(ref: str) -> str:
    """The name that a tenant knows an id in the store by."""
    return split(ref)[1]
