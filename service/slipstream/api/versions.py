"""`/versions` and `/aliases`: the versions of the policy, which of them are kept, and names for them."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.api.bodies import BodyRoute
from slipstream.api.context import SidecarDep
from slipstream.api.pages import LARGEST_VERSION
from slipstream.api.scope import ScopeDep, author, require_all_tenants
from slipstream.errors import RequestError
from slipstream.http.body import Body
from slipstream.sidecar import Sidecar
from slipstream.store import aliases, audit, version_views, versions
from slipstream.store.audit import Action, Write
from slipstream.store.versions import InUse
from slipstream.versions.files import NotPlaced
from slipstream.versions.lanes import LaneStep
from slipstream.versions.registry import refused_where_not_kept

OF_ALL = "versions are of all tenants"
"""Beginning of the refusal of a tenant's key."""

router = APIRouter(tags=["versions"], route_class=BodyRoute)

_Limit = Annotated[int, Field(ge=1, le=200)]
_VersionName = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
_AliasName = Annotated[
    str,
    Path(
        min_length=1,
        max_length=64,
        pattern=r"^([0-9]*[A-Za-z]|[0-9]+[._-])[A-Za-z0-9._-]*$",
        description="Letters, digits, `.`, `_` and `-`, first a letter or a digit, and not digits alone, which is a "
        "version.",
    ),
]
_AnyAlias = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$")]
"""Aliases could once begin with a sign. They stay, and can be removed."""


class VersionsQuery(BaseModel):
    """A page of versions."""

    model_config = ConfigDict(extra="forbid")

    limit: _Limit = 50
    cursor: Annotated[int, Field(ge=0, le=LARGEST_VERSION)] | None = None


class HistoryQuery(BaseModel):
    """A page of the changes of an alias."""

    model_config = ConfigDict(extra="forbid")

    limit: _Limit = 50
    cursor: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None


class AliasBody(Body):
    """The version that a name is to mean."""

    version: int = Field(ge=0, le=LARGEST_VERSION)


@router.get("/versions")
async def get_versions(query: Annotated[VersionsQuery, Query()], sidecar: SidecarDep) -> dict[str, Any]:
    """A page of versions, the newest first; `next` is the cursor of the page after it."""
    async with sidecar.database.read() as session:
        found, after = await version_views.page(session, query.limit, query.cursor)
        verdicts = await sidecar.verdicts.of(session, [one["version"] for one in found])
    lane = await sidecar.versions.in_lane()
    views = [{**_served(sidecar, one, lane), "verdict": verdicts[one["version"]]} for one in found]
    return {"versions": views, "next": after}


@router.get("/versions/{version}")
async def get_version(version: _VersionName, sidecar: SidecarDep) -> dict[str, Any]:
    """One version, by its number or by an alias."""
    async with sidecar.database.read() as session:
        return await _view(sidecar, session, await number_of(session, version))


@router.post("/versions/{version}/keep")
async def post_keep(version: _VersionName, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Keep the weights of a version, so that the Trainer's pruning does not reach them."""
    require_all_tenants(scope, OF_ALL)
    async with sidecar.database.read() as session:
        number = await number_of(session, version)
        await _view(sidecar, session, number)
    now = time.time()
    with refused_where_not_kept("version"):
        async with sidecar.versions.keeping(number) as path, sidecar.database.write() as session:
            if path is None:
                raise NotPlaced(
                    "expected serving.checkpoints, the Trainer's directory, to take weights from; found null"
                )
            await versions.keep(session, number, str(path), "hand", now)
            await audit.note(session, Write(Action.VERSION_KEEP, str(number)), author(scope), now)
    async with sidecar.database.read() as session:
        return await _view(sidecar, session, number)


@router.delete("/versions/{version}/keep")
async def delete_keep(version: _VersionName, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Delete the kept weights of a version. One that has an alias, or that a rollout has, is refused."""
    require_all_tenants(scope, OF_ALL)
    now = time.time()
    async with sidecar.database.read() as session:
        number = await number_of(session, version)
        await _view(sidecar, session, number)
    try:
        async with sidecar.versions.releasing(number), sidecar.database.write() as session:
            if await versions.release(session, number, now):
                await audit.note(session, Write(Action.VERSION_RELEASE, str(number)), author(scope), now)
    except InUse as error:
        text = f"version {number}: expected one that nothing needs; {error}"
        raise RequestError(text, param="version", status=409, code="in_use") from error
    async with sidecar.database.read() as session:
        return await _view(sidecar, session, number)


@router.get("/aliases")
async def get_aliases(sidecar: SidecarDep) -> dict[str, Any]:
    """All aliases, in alphabetical order."""
    async with sidecar.database.read() as session:
        return {"aliases": await aliases.listed(session)}


@router.put("/aliases/{name}")
async def put_alias(name: _AliasName, body: AliasBody, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Have a name mean a version, and keep that version's weights."""
    require_all_tenants(scope, OF_ALL)
    async with sidecar.database.read() as session:
        await _view(sidecar, session, body.version)
    now = time.time()
    with refused_where_not_kept("version"):
        async with sidecar.versions.keeping(body.version) as path, sidecar.database.write() as session:
            if path is not None:
                await versions.keep(session, body.version, str(path), "alias", now)
            before = await aliases.point(session, name, body.version, scope.key, now)
            await audit.note(session, Write(Action.ALIAS_SET, name), author(scope), now)
    return {"name": name, "version": body.version, "before": before, "kept": path is not None}


@router.delete("/aliases/{name}")
async def delete_alias(name: _AnyAlias, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Take a name away. Its history stays, and so do the weights of its version, until they are released."""
    require_all_tenants(scope, OF_ALL)
    now = time.time()
    async with sidecar.database.write() as session:
        before = await aliases.remove(session, name, scope.key, now)
        if before is None:
            raise RequestError(f"no alias has the name {name!r}", param="name", status=404, code="not_found")
        await audit.note(session, Write(Action.ALIAS_REMOVE, name), author(scope), now)
    return {"name": name, "before": before}


@router.get("/aliases/{name}/history")
async def get_history(name: _AnyAlias, query: Annotated[HistoryQuery, Query()], sidecar: SidecarDep) -> dict[str, Any]:
    """Changes of an alias, the newest first, removals included; `next` is the cursor of the page after it."""
    async with sidecar.database.read() as session:
        changes, after = await aliases.history(session, name, query.limit, query.cursor)
    return {"name": name, "history": changes, "next": after}


async def number_of(session: AsyncSession, name: str, param: str = "version") -> int:
    """The number of a version that is named by it or by an alias.

    Args:
        param: the field that names it, for the error.

    Raises:
        RequestError: 404, there is no such alias.
    """
    number = int(name) if name.isdecimal() else await aliases.version_of(session, name)
    if number is None or number > LARGEST_VERSION:
        raise RequestError(f"no version has the number or alias {name!r}", param=param, status=404, code="not_found")
    return number


async def _view(sidecar: Sidecar, session: AsyncSession, version: int) -> dict[str, Any]:
    found = await version_views.view(session, version)
    if found is None:
        raise RequestError(f"no version has the number {version}", param="version", status=404, code="not_found")
    lane = await sidecar.versions.in_lane()
    verdict = (await sidecar.verdicts.of(session, [version]))[version]
    return {**_served(sidecar, found, lane), "verdict": verdict}


def _served(sidecar: Sidecar, view: dict[str, Any], lane: LaneStep | None) -> dict[str, Any]:
    """The view with where the version serves: at the training Explorer, and in the lane."""
    places = {"explorer": sidecar.watch.version, "lane": None if lane is None else lane.version}
    return {**view, "serves": [place for place, version in places.items() if version == view["version"]]}
