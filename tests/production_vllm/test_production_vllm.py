"""vLLM's CPU build as production: each stream is captured, though the openai SDK leaves at `[DONE]`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
VLLM = HERE.parents[1] / ".vllm-venv" / "bin" / "python"
CALLS = 20


@pytest.mark.slow
def test_each_stream_of_vllm_is_captured(smollm2: Path, tmp_path: Path) -> None:
    assert VLLM.exists(), "run `make test-production-vllm`"
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    done = subprocess.run(
        [
            *("unshare", *as_root, "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "--"),
            *("sh", "-c", 'ip link set lo up && exec "$@"', "sh"),
            *(sys.executable, str(HERE / "calls.py"), "--vllm", str(VLLM)),
            *("--model", str(smollm2), "--folder", str(tmp_path), "--calls", str(CALLS)),
        ],
        stdout=subprocess.PIPE,
        timeout=1800,
        check=True,
    )
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["sync"] == {"captured": CALLS}
    assert result["async"] == {"captured": CALLS}
    assert result["connections"] <= CALLS, "more than half of the calls had a connection that was used before"
