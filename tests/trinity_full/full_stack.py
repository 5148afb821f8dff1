"""Programs of the real Trinity-RFT on a CPU, each in namespaces of its own, from the shipped files."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from slipstream import logs
from slipstream.local import model as models
from slipstream.local.supervisor import Child

ROOT = Path(__file__).parents[2]
HERE = ROOT / "tests" / "trinity_full"
TRINITY = Path(os.environ.get("TRINITY_FULL_VENV", ROOT / ".trinity-full-venv")) / "bin"
OVERLAYS = (ROOT / "overlays" / "one-gpu.yaml", ROOT / "overlays" / "small-cpu.yaml", HERE / "overlay.yaml")
START_SECONDS = 1800.0
"""vLLM and Ray on two busy cores."""
_INSIDE = "SLIPSTREAM_TEST_NAMESPACE"


def enter(model: Path) -> bool:
    """Start this program again in namespaces, with the model in its place; return at once where it is there already.

    Returns:
        Whether Trinity is installed; if not, that was said.
    """
    if _INSIDE in os.environ:
        del os.environ[_INSIDE]
        return True
    if not (TRINITY / "trinity").exists():
        print(f"{TRINITY.parent} is missing: run `make test-trinity-full`", file=sys.stderr)
        return False
    logs.configure("warning", "console")
    models.fetch("smollm2", model)  # while there is a network
    shutil.copy(HERE / "tools.jinja", model / "chat_template.jinja")
    os.environ[_INSIDE] = "1"
    os.execvp("unshare", in_namespaces([sys.executable, *sys.argv]))
    raise AssertionError("it does not return")


def trinity(role: str, overlays: Sequence[Path], ready_url: str | None = None) -> Child:
    """`slipstream trinity` on one of the shipped files, in Trinity's environment."""
    command: Sequence[str] = (
        *(*slipstream(), "trinity", "--config", str(ROOT / f"{role}.yaml")),
        *(argument for overlay in (*OVERLAYS, *overlays) for argument in ("--overlay", str(overlay))),
    )
    # the Explorer stays where the sidecar is; the Trainer is on "another host"
    command = command if ready_url else tuple(in_namespaces(command))
    return Child(
        name=role, command=command, ready_url=ready_url, ready_within=START_SECONDS, environment=environment(role)
    )


def slipstream() -> tuple[str, ...]:
    """The command in Trinity's environment."""
    return (str(TRINITY / "python"), "-u", "-m", "slipstream")


def environment(role: str) -> Mapping[str, str]:
    """What is added to the environment of a program of Trinity's."""
    return {
        "PATH": f"{TRINITY}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{HERE / 'cpu_shim'}{os.pathsep}{ROOT / 'service'}",
        "RAY_TMPDIR": f"/tmp/slipstream-ray-{role}",  # a socket's path has at most 107 characters
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": "600",  # its 30 are too few on a busy machine
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "1800",  # its 300 are for a GPU: a busy machine's engine died of them
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "WANDB_MODE": "disabled",
    }


def in_namespaces(command: Sequence[str]) -> list[str]:
    """The command with loopback as its only network; when it ends, all that it started ends."""
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    return [
        *("unshare", *as_root, "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "--"),
        *("sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command),
    ]
