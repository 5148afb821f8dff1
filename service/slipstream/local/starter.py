"""The files of `slipstream init DIR`: configuration, an agent, its reward function, and a program that shows the curve.

They are those of the repository: `explorer.yaml`, `trainer.yaml`, `overlays/` and `examples/first_hour/`. The wheel has
them in `slipstream/starter/` (pyproject.toml); an editable installation reads them where they lie.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from slipstream.errors import SlipstreamError

_PACKAGED = Path(__file__).parents[1] / "starter"
_REPOSITORY = Path(__file__).parents[3]
CHECKPOINTS = "checkpoints"
"""Directory in which Explorer and Trainer of `overlays/quickstart.yaml` meet; the doctor expects it to exist."""


class FilesInTheWay(SlipstreamError):
    """The directory has files of these names already; nothing was written."""


def write(directory: Path) -> list[str]:
    """Write the files into a directory, which is made where it is not there, and name them.

    Raises:
        FilesInTheWay: at least one of them is there already.
    """
    files = templates()
    there = [name for name in files if (directory / name).exists()]
    if there:
        raise FilesInTheWay(f"{directory}: expected none of the files to be written; found {', '.join(there)}")
    for name, source in files.items():
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    (directory / CHECKPOINTS).mkdir(exist_ok=True)
    return list(files)


def templates() -> dict[str, Path]:
    """Return the source of each file, by its path below the directory."""
    settings = _PACKAGED if _PACKAGED.is_dir() else _REPOSITORY
    own = _PACKAGED if _PACKAGED.is_dir() else _REPOSITORY / "examples" / "first_hour"
    found = [own / name for name in ("sidecar.yaml", "my_rewards.py", "my_agent.py", "curve.py")]
    found += [settings / "explorer.yaml", settings / "trainer.yaml"]
    overlays = {f"overlays/{path.name}": path for path in sorted((settings / "overlays").glob("*.yaml"))}
    return {path.name: path for path in found} | overlays
