"""`GET /settings`: the configuration in force, without its secrets."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import AfterValidator, BaseModel, ConfigDict

from slipstream.api.context import AnySidecarDep
from slipstream.api.scope import ScopeDep, require_all_tenants
from slipstream.settings.shown import shown
from slipstream.settings.sidecar import Settings

router = APIRouter(tags=["operations"])


def _is_section(name: str) -> str:
    if name not in Settings.model_fields:
        raise ValueError(f"one of {', '.join(Settings.model_fields)}")
    return name


class SettingsQuery(BaseModel):
    """Filters of the configuration. A misspelt filter is refused."""

    model_config = ConfigDict(extra="forbid")

    section: Annotated[str, AfterValidator(_is_section)] | None = None
    set: bool | None = None


@router.get("/settings")
async def get_settings(
    query: Annotated[SettingsQuery, Query()], sidecar: AnySidecarDep, scope: ScopeDep
) -> dict[str, Any]:
    """Each key of the configuration, with its value, its default, and whether it was set. Secrets are masked."""
    require_all_tenants(scope, "the configuration is of all tenants")
    wanted = (
        each
        for each in shown(sidecar.settings)
        if query.section in (None, each.key.partition(".")[0]) and query.set in (None, each.set)
    )
    return {"settings": [asdict(each) for each in wanted]}
