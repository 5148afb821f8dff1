"""The page over what the demo left behind: its tasks, answers, rewards and versions.

    python examples/demo/look.py [--output DIR] [--port N]

Only the sidecar runs, over the store of the last `make demo`. So the page says that the Explorer is away.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from services import set_environment
from tasks import TASKS_A_STEP

_OUTPUT = Path(__file__).parents[2] / "demo-output"

_NOBODY = 9
"""A port at which nothing answers: discard's."""


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=_OUTPUT)
    parser.add_argument("--port", type=int, default=8100)
    arguments = parser.parse_args()
    run_dir = arguments.output.absolute() / "run"
    if not (run_dir / "slipstream.db").exists():
        sys.exit(f"demo: expected the store of a run in {run_dir}, which `make demo` makes; found none")
    set_environment(
        RUN_DIR=run_dir,
        BATCH=TASKS_A_STEP * 8,
        PRODUCTION_PORT=_NOBODY,
        EXPLORER_PORT=_NOBODY,
        SIDECAR_PORT=arguments.port,
    )
    print(f"the page: http://127.0.0.1:{arguments.port}/ (Ctrl-C ends it)", flush=True)
    os.execv(sys.executable, [sys.executable, "-m", "slipstream", "serve", "--config", "sidecar.yaml"])


if __name__ == "__main__":
    main()
