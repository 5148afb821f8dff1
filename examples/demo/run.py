"""The demo: an agent works through the sidecar, and the policy model in its shadow learns from it.

    python examples/demo/run.py [--seed N] [--steps N] [--output DIR]

Everything runs on this machine; what it writes is under `demo-output/`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

import httpx
from learning import DemoError, History, learn
from openai import APIConnectionError
from outcome import fresh, plan_arguments, plan_of, stopwatch, write
from services import configured, run_beside

from slipstream import logs
from slipstream.errors import SlipstreamError
from slipstream.local import model as models

_OUTPUT = Path(__file__).parents[2] / "demo-output"


def main() -> int:
    arguments = _arguments()
    logs.configure("warning", "console")
    output: Path = arguments.output.absolute()
    run_dir = fresh(output / "run")
    began = time.monotonic()
    say = stopwatch(began)
    plan = plan_of(arguments)
    history = History()
    try:
        say(f"fetching the model: {models.SMOLLM2}")
        model = models.fetch("smollm2", arguments.model.absolute() if arguments.model else output / "model")
        services = configured(model, run_dir, plan.seed, tasks_a_step=plan.tasks_a_step)
        say(f"starting production, Explorer, Trainer and sidecar; their log is {services.log_path}")
        say(f"the page, while this runs: {services.sidecar_url}/ (afterwards: make demo-page)")
        finished = asyncio.run(run_beside(services, learn(plan, services, str(model), history, say)))
    except (SlipstreamError, DemoError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except (httpx.TransportError, APIConnectionError) as error:
        print(f"demo: stopped, or a service went away ({error}); see {run_dir / 'services.log'}", file=sys.stderr)
        return 1
    if not finished:
        print("demo: stopped", file=sys.stderr)
        return 1
    write(plan, history, time.monotonic() - began, output)
    print(_table(history))
    print(", ".join(f"{count} {what}" for what, count in history.counts.items()))
    say(f"done; chart: {output / 'reward.png'}, numbers: {output / 'summary.json'}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    plan_arguments(parser)
    parser.add_argument("--output", type=Path, default=_OUTPUT)
    return parser.parse_args()


def _table(history: History) -> str:
    rows = [("production", history.production), *((f"policy, version {v}", s) for v, s in history.policy.items())]
    lines = ["", f"{'on held-out tasks':<20} {'reward':>7} {'tool called':>12}"]
    lines += [f"{name:<20} {s.reward:7.2f} {s.called:12.2f}" for name, s in rows if s is not None]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
