"""The modules of the demo stand beside each other, as in the folder that it runs in; its benchmark stands elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples" / "demo"))
sys.path.append(str(ROOT / "benchmarks"))
