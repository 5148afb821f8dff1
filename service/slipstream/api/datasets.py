"""`/datasets`: the data sets in the sidecar's folder."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi import Path as PathParameter

from slipstream.api.context import SidecarDep
from slipstream.api.scope import ScopeDep, require_all_tenants
from slipstream.datasets import folder
from slipstream.datasets.manifest import Manifest
from slipstream.errors import RequestError
from slipstream.sidecar import Sidecar
from slipstream.store import dataset_versions

router = APIRouter(tags=["datasets"])

_OF_ALL = "a data set is made of the conversations of all tenants that it names"

Name = Annotated[str, PathParameter(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


@router.get("/datasets")
async def get_datasets(sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """The data sets in `datasets.directory`, the newest first, with the versions that were trained on them."""
    require_all_tenants(scope, _OF_ALL)
    directory = _directory(sidecar)
    found, unreadable = ([], {}) if directory is None else await asyncio.to_thread(_all, directory)
    versions = await _versions(sidecar, [made.name for made in found])
    return {
        "directory": _said(directory),
        "datasets": [{**_summary(made), "versions": versions[made.name]} for made in found],
        "unreadable": [{"name": name, "problem": problem} for name, problem in unreadable.items()],
    }


@router.get("/datasets/{name}")
async def get_dataset(name: Name, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """One data set: its manifest, its card in Markdown, and the versions that were trained on it."""
    require_all_tenants(scope, _OF_ALL)
    directory = _directory(sidecar)
    made, card = await asyncio.to_thread(_read, directory, name)
    versions = await _versions(sidecar, [name])
    return {
        "manifest": made.model_dump(mode="json"),
        "card": card,
        "directory": _said(directory),
        "versions": versions[name],
    }


def _directory(sidecar: Sidecar) -> Path | None:
    return sidecar.settings.datasets.directory


def _said(directory: Path | None) -> str | None:
    return None if directory is None else str(directory)


async def _versions(sidecar: Sidecar, names: list[str]) -> dict[str, list[int]]:
    async with sidecar.database.read() as session:
        return await dataset_versions.trained_on(session, names)


def _all(directory: Path) -> tuple[list[Manifest], dict[str, str]]:
    """The manifests, the newest first, and why some cannot be read, by name."""
    found, unreadable = [], {}
    for path in folder.list_folders(directory):
        try:
            found.append(folder.manifest(path))
        except folder.DatasetMissing:  # it was deleted meanwhile
            continue
        except folder.DatasetError as error:
            unreadable[path.name] = str(error)
    return sorted(found, key=lambda made: made.made_at, reverse=True), unreadable


def _summary(made: Manifest) -> dict[str, Any]:
    return made.model_dump(mode="json", include={"name", "kind", "format", "made_at", "counts", "dropped", "digest"})


def _read(directory: Path | None, name: str) -> tuple[Manifest, str]:
    try:
        if directory is None:
            raise folder.DatasetMissing(f"there is no data set {name}")
        return folder.manifest(directory / name), (directory / name / "README.md").read_text(encoding="utf-8")
    except (folder.DatasetMissing, FileNotFoundError) as error:
        raise RequestError(f"name: there is no data set {name}", status=404, param="name", code="not_found") from error
    except folder.DatasetError as error:
        raise RequestError(f"name: {error}", status=409, param="name", code="dataset_unreadable") from error
