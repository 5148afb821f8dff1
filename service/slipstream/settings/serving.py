"""The section `serving` of sidecar.yaml: versions of the policy that are kept, and the lane that answers users."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from slipstream.config.file_path import FolderPath
from slipstream.config.units import ByteSize, PositiveDuration
from slipstream.settings.section import Section
from slipstream.settings.types import BaseUrl, EmptyIsNone


def _off_or_on(value: Any) -> Any:
    """YAML reads the bare words `off` and `on` as false and true."""
    return {False: "off", True: "on"}[value] if isinstance(value, bool) else value


class Lane(Section):
    """A server of the policy model that answers users. Without `model` its own list is asked.

    `directory`: the job directory that it follows and that only Slipstream writes; without one it is switched by hand.
    `max_context`: the most tokens of a prompt and its answer; without it they are not counted.
    """

    base_url: BaseUrl
    model: Annotated[str | None, EmptyIsNone, Field(max_length=1024)] = None
    directory: FolderPath = None
    max_context: Annotated[int, Field(ge=1)] | None = None
    connect_timeout: PositiveDuration = 5.0
    idle_timeout: PositiveDuration = 120.0


class LaneFailures(Section):
    """The number of failures of the lane in a row after which a worker leaves it alone, and for how long."""

    failures: int = Field(default=5, ge=1)
    pause: PositiveDuration = 30.0


class Serving(Section):
    """Versions of the policy that answer users: `docs/serving.md` and `docs/versions.md`.

    `checkpoints`: the Trainer's job directory, in which versions are found; `keep`: the folder for those that are kept.
    `keep_newest` versions are kept on sight, before the Trainer can delete them. With `copy_files` weights are copied
    and not hard-linked. `max_body`: the most bytes of a request that may go to the lane.
    """

    mode: Annotated[Literal["off", "on"], BeforeValidator(_off_or_on)] = "off"
    lane: Lane | None = None
    checkpoints: FolderPath = None
    keep: FolderPath = None
    keep_newest: int = Field(default=3, ge=0, le=1000)
    copy_files: bool = False
    first_byte_timeout: PositiveDuration = 30.0
    max_body: ByteSize = 1024**2
    breaker: LaneFailures = LaneFailures()

    @model_validator(mode="after")
    def _has_directories_of_their_own(self) -> Self:
        lane = None if self.lane is None else self.lane.directory
        if lane is not None:
            for name, other in (("checkpoints", self.checkpoints), ("keep", self.kept_folder)):
                if other is not None and lane.absolute() == other.absolute():
                    raise ValueError(f"a lane.directory that only Slipstream writes, and another one as {name}")
        return self

    @property
    def lane_url(self) -> str | None:
        """Return the base URL of the lane that answers users; None if there is none."""
        return None if self.routed is None else self.routed.base_url

    @property
    def routed(self) -> Lane | None:
        """Return the lane to which users' requests may go; None where production answers all of them."""
        return self.lane if self.mode == "on" else None

    @property
    def kept_folder(self) -> Path | None:
        """Return the folder of kept versions; None where neither it nor `checkpoints` is given."""
        if self.keep is not None:
            return self.keep
        return None if self.checkpoints is None else self.checkpoints / "kept"
