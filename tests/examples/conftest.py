"""The demo's modules stand beside each other, as in the folder that `make demo` runs."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "examples" / "demo"))
