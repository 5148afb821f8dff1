"""The whole of Trinity-RFT on a CPU, learning the demo's job through the sidecar: `make test-trinity-full`.

    python tests/trinity_full/run.py [--algorithm grpo|rloo] [--seed N] [--steps N] [--output DIR]

The sidecar, the agent, its tasks and their reward are the demo's (examples/demo). Explorer and Trainer are the real
`trinity run`: vLLM's CPU build serves, verl trains with GRPO or RLOO, each on a Ray of its own, as in
docker-compose.yml. They share the checkpoint directory with its database, and nothing else: each lives in a network
namespace of its own, where nothing but loopback is (Ray listens on all interfaces), and in a process namespace, so that
nothing of Ray survives.
Exit code 0: the policy version rose at each step and the reward on held-out tasks by 0.025 a step, 0.2 after eight.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = ROOT / "tests" / "trinity_full"
DEMO = ROOT / "examples" / "demo"
TRINITY = ROOT / ".trinity-full-venv" / "bin"
sys.path.insert(0, str(DEMO))

from learning import DemoError, History, Plan, learn  # noqa: E402
from outcome import fresh, plan_arguments, plan_of, stopwatch, write  # noqa: E402
from services import Services, run_beside  # noqa: E402

from slipstream import logs  # noqa: E402
from slipstream.errors import SlipstreamError  # noqa: E402
from slipstream.local import model as models  # noqa: E402
from slipstream.local.supervisor import Child  # noqa: E402

_PRODUCTION, _EXPLORER, _SIDECAR = 8000, 8010, 8100  # ports of a namespace that is ours alone
_LEAST_GAIN = 0.025  # a step
_START_SECONDS = 1800.0  # vLLM and Ray on two busy cores
_STEP_SECONDS = 1800.0
_INSIDE = "SLIPSTREAM_TEST_NAMESPACE"


def main() -> int:
    arguments = _arguments()
    output: Path = arguments.output.absolute()
    model: Path = arguments.model.absolute() if arguments.model else output / "model"
    if _INSIDE not in os.environ:
        if not (TRINITY / "trinity").exists():
            print(f"{TRINITY.parent} is missing: run `make test-trinity-full`", file=sys.stderr)
            return 2
        logs.configure("warning", "console")
        models.fetch("smollm2", model)  # while there is a network
        shutil.copy(HERE / "tools.jinja", model / "chat_template.jinja")
        os.environ[_INSIDE] = "1"
        os.execvp("unshare", _in_namespaces([sys.executable, *sys.argv]))
    del os.environ[_INSIDE]
    return _run(replace(plan_of(arguments), step_seconds=_STEP_SECONDS), arguments.algorithm, output, model)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    plan_arguments(parser)
    parser.add_argument("--algorithm", choices=("grpo", "rloo"), default="grpo")
    parser.add_argument("--output", type=Path, default=ROOT / "trinity-full-output")
    return parser.parse_args()


def _run(plan: Plan, algorithm: str, output: Path, model: Path) -> int:
    run_dir = fresh(output / "run")
    began = time.monotonic()
    say = stopwatch(began)
    (run_dir / "algorithm.yaml").write_text(f"algorithm: {{algorithm_type: {algorithm}}}\n")
    services = _services(model, run_dir, plan.seed)
    say(f"starting production, Explorer, Trainer and sidecar; their log is {services.log_path}")
    history = History()
    try:
        finished = asyncio.run(run_beside(services, learn(plan, services, str(model), history, say)))
    except (SlipstreamError, DemoError) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    if not finished or history.production is None:
        print("stopped", file=sys.stderr)
        return 1
    write(plan, history, time.monotonic() - began, output)
    first, last = min(history.policy), max(history.policy)
    gain = history.policy[last].reward - history.policy[first].reward
    say(f"version {first} to {last}: reward {gain:+.2f} on {plan.held_out} held-out tasks; {output / 'summary.json'}")
    least = _LEAST_GAIN * plan.steps
    if last < plan.steps or gain < least:
        print(f"failed: expected version {plan.steps} and a gain of {least:.2f}", file=sys.stderr)
        return 1
    return 0


def _services(model: Path, run_dir: Path, seed: int) -> Services:
    os.chdir(DEMO)  # where the sidecar finds its reward
    os.environ |= {
        "MODEL_PATH": str(model),
        "RUN_DIR": str(run_dir),
        "CHECKPOINT_ROOT_DIR": str(run_dir),
        "SEED": str(seed),
        "BATCH": "32",
        "PRODUCTION_PORT": str(_PRODUCTION),
        "EXPLORER_PORT": str(_EXPLORER),
        "SIDECAR_PORT": str(_SIDECAR),
    }
    ours = (sys.executable, "-uP", "-m", "slipstream")
    programs = (
        Child(
            name="production",
            command=(*ours, "explorer", "--config", "production.yaml"),
            ready_url=f"http://127.0.0.1:{_PRODUCTION}/health",
        ),
        _trinity("explorer", run_dir, ready_url=f"http://127.0.0.1:{_EXPLORER}/health"),
        _trinity("trainer", run_dir),
        Child(
            name="sidecar",
            command=(*ours, "serve", "--config", "sidecar.yaml"),
            ready_url=f"http://127.0.0.1:{_SIDECAR}/healthz",
        ),
    )
    return Services(
        agent_url=f"http://127.0.0.1:{_SIDECAR}/v1",
        policy_url=f"http://127.0.0.1:{_EXPLORER}/v1",
        sidecar_url=f"http://127.0.0.1:{_SIDECAR}",
        programs=programs,
        log_path=run_dir / "services.log",
    )


def _trinity(role: str, run_dir: Path, ready_url: str | None = None) -> Child:
    """`slipstream trinity` on one of the shipped files, in Trinity's environment."""
    shipped = (ROOT / "overlays" / name for name in ("one-gpu.yaml", "small-cpu.yaml"))
    overlays = (*shipped, HERE / "overlay.yaml", run_dir / "algorithm.yaml")
    command: Sequence[str] = (
        *(str(TRINITY / "python"), "-u", "-m", "slipstream", "trinity", "--config", str(ROOT / f"{role}.yaml")),
        *(argument for overlay in overlays for argument in ("--overlay", str(overlay))),
    )
    environment: Mapping[str, str] = {
        "PATH": f"{TRINITY}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{HERE / 'cpu_shim'}{os.pathsep}{ROOT / 'service'}",
        "RAY_TMPDIR": f"/tmp/slipstream-ray-{role}",  # a socket's path has at most 107 characters
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "1800",  # its 300 are for a GPU: a busy machine's engine died of them
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "WANDB_MODE": "disabled",
    }
    # the Explorer stays where the sidecar is; the Trainer is on "another host"
    command = command if ready_url else tuple(_in_namespaces(command))
    return Child(name=role, command=command, ready_url=ready_url, ready_within=_START_SECONDS, environment=environment)


def _in_namespaces(command: Sequence[str]) -> list[str]:
    """The command with loopback as its only network; when it ends, all that it started ends."""
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    return [
        *("unshare", *as_root, "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "--"),
        *("sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command),
    ]


if __name__ == "__main__":
    sys.exit(main())
