"""vLLM's CPU build as production, and as the engine of the embedded Explorer, in a network namespace."""

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
SECONDS = 1800


def in_namespace(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program where the loopback is all the network there is; all that it starts ends with it."""
    assert VLLM.exists(), "run `make test-vllm`"
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    return subprocess.run(
        [
            *("unshare", *as_root, "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "--"),
            *("sh", "-c", 'ip link set lo up && exec "$@"', "sh"),
            *(sys.executable, *command),
        ],
        stdout=subprocess.PIPE,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.mark.slow
def test_each_stream_of_vllm_is_captured(smollm2: Path, tmp_path: Path) -> None:
    """The openai SDK leaves at `[DONE]`."""
    program = str(HERE / "production_calls.py")
    done = in_namespace(
        program, "--vllm", str(VLLM), "--model", str(smollm2), "--folder", str(tmp_path), "--calls", str(CALLS)
    )

    assert done.returncode == 0
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["sync"] == {"captured": CALLS}
    assert result["async"] == {"captured": CALLS}
    assert result["connections"] <= CALLS, "more than half of the calls had a connection that was used before"


@pytest.mark.slow
def test_the_embedded_explorer_answers_by_vllm(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_PYTHON", str(VLLM))
    monkeypatch.setenv("SMOLLM2", str(smollm2))
    done = in_namespace("-m", "pytest", "-p", "no:cacheprovider", str(HERE / "explorer_on_vllm.py"))

    assert done.returncode == 0, done.stdout
