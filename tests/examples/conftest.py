"""The demo's modules stand beside each other, as in the folder that `make demo` runs."""

from __future__ import annotations

import sys
from pathlib import Path

# in front: the benchmarks, which other tests import, have a module `learning` as well
sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "demo"))
