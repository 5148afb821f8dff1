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
import sys
import time
from dataclasses import replace
from pathlib import Path

from full_stack import ROOT, enter, trinity

DEMO = ROOT / "examples" / "demo"
sys.path.insert(0, str(DEMO))

from learning import DemoError, History, Plan, learn  # noqa: E402
from outcome import fresh, plan_arguments, plan_of, stopwatch, write  # noqa: E402
from services import Services, run_beside  # noqa: E402

from slipstream.errors import SlipstreamError  # noqa: E402
from slipstream.local.supervisor import Child  # noqa: E402

_PRODUCTION, _EXPLORER, _SIDECAR = 8000, 8010, 8100  # ports of a namespace that is ours alone
_LEAST_GAIN = 0.025  # a step
_STEP_SECONDS = 1800.0


def main() -> int:
    arguments = _arguments()
    output: Path = arguments.output.absolute()
    model: Path = arguments.model.absolute() if arguments.model else output / "model"
    if not enter(model):
        return 2
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
    overlays = (run_dir / "algorithm.yaml",)
    ours = (sys.executable, "-uP", "-m", "slipstream")
    programs = (
        Child(
            name="production",
            command=(*ours, "explorer", "--config", "production.yaml"),
            ready_url=f"http://127.0.0.1:{_PRODUCTION}/health",
        ),
        trinity("explorer", overlays, ready_url=f"http://127.0.0.1:{_EXPLORER}/health"),
        trinity("trainer", overlays),
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


if __name__ == "__main__":
    sys.exit(main())
