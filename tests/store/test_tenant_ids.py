"""Ids of tenants in the store: each is one tenant's, and read back as it was given."""

from __future__ import annotations

import itertools
import re

import pytest
from sqlalchemy.ext.asyncio import AsyncSession
from stores import ON_BOTH_STORES

from slipstream.store.database import Database
from slipstream.store.lengths import ID_LENGTH, REF_LENGTH
from slipstream.store.tables.capture import TaskRow
from slipstream.store.tenancy import tenants, with_one_named
from slipstream.tenants import DEFAULT, NAME, name_of, qualified, split, tenant_of

TENANTS = (DEFAULT, "acme", "acme.2", "a", "tenant", "t" * 64)
PLAIN = ("x", "acme", "/", "/x", "tenant", "tenant=", "tenant=/", "ten\x00ant=", "\ud7ff", " ", "n" * ID_LENGTH)
NAMES = (*PLAIN, *(f"tenant={tenant}/{name}" for tenant in TENANTS for name in ("", "x", "tenant=acme/x")))


def test_two_ids_are_the_same_only_if_the_tenant_and_the_name_are() -> None:
    named = list(itertools.product(TENANTS, NAMES))
    refs = [qualified(*each) for each in named]
    assert len(set(refs)) == len(set(named))
    assert [split(ref) for ref in refs] == [(tenant_of(ref), name_of(ref)) for ref in refs] == named


def test_the_longest_id_has_room_in_its_column() -> None:
    tenant = "t" * 64
    assert re.fullmatch(NAME, tenant)
    assert len(qualified(tenant, "n" * ID_LENGTH)) == REF_LENGTH


def task(tenant: str, name: str) -> TaskRow:
    return TaskRow(
        id=qualified(tenant, name), session_id=qualified(tenant, "s"), tenant=tenant, created_at=1.0, updated_at=1.0
    )


@ON_BOTH_STORES
async def test_the_tenants_of_the_store_are_known_by_what_they_have(store_url: str) -> None:
    database = Database(store_url)
    await database.open()

    async def named(session: AsyncSession, name: str) -> list[str]:
        return await with_one_named(session, "task_id", name)

    try:
        async with database.write() as session:
            assert await tenants(session) == []
            session.add_all(
                [task("beta", "x"), *(task("acme", f"{number}") for number in range(20)), task("acme", "x")]
            )
        async with database.write() as session:
            assert await tenants(session) == ["acme", "beta"]
            session.add(task(DEFAULT, "y"))
        async with database.read() as session:
            assert await tenants(session) == ["acme", "beta", DEFAULT]
            assert await named(session, "x") == ["acme", "beta"]
            assert await named(session, "y") == [DEFAULT]
            assert await named(session, "tenant=acme/x") == []
            assert await with_one_named(session, "session_id", "s") == ["acme", "beta", DEFAULT]
    finally:
        await database.close()


@pytest.mark.parametrize("name", ["", "a b", "a/b", "*", "ä", "a" * 65, "a\n"])
def test_no_tenant_is_called_what_an_id_could_not_be_split_by(name: str) -> None:
    from pydantic import ValidationError

    from slipstream.access.settings import ApiKey

    with pytest.raises(ValidationError, match="tenant"):
        ApiKey.model_validate({"name": "k", "roles": ["proxy"], "hash": "sha256:" + "0" * 64, "tenant": name})
