"""The base of all sections of `sidecar.yaml`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A section of the file: no other keys, and no changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)
