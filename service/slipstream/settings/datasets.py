"""The section `datasets` of sidecar.yaml: the folder of data sets, and the sessions that nothing is trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from slipstream.config.file_path import FolderPath
from slipstream.settings.section import Section


class Datasets(Section):
    """Data sets, `docs/datasets.md`.

    `directory`: the folder that `slipstream dataset export` writes to, and in which `DELETE /data` deletes rows; null
    for none. `held_out`: the share of the sessions of which no task is trained on, by any algorithm, so that versions
    can be evaluated on them.
    """

    directory: FolderPath = Path("datasets")
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0
