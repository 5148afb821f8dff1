"""The demo: an agent works through the sidecar, and the policy model in its shadow learns from it.

    python examples/demo/run.py [--seed N] [--steps N] [--output DIR]

Everything runs on this machine; what it writes is under `demo-output/`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path

import httpx
from chart import draw
from learning import DemoError, History, Plan, learn
from openai import APIConnectionError
from reward import Score
from services import configured, run_beside

from slipstream import logs
from slipstream import model as models
from slipstream.errors import SlipstreamError

_OUTPUT = Path(__file__).parents[2] / "demo-output"


def main() -> int:
    arguments = _arguments()
    logs.configure("warning", "console")
    output: Path = arguments.output.absolute()
    run_dir = output / "run"
    shutil.rmtree(run_dir, ignore_errors=True)
    run_dir.mkdir(parents=True)
    began = time.monotonic()

    def say(text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - began), 60)
        print(f"{minutes:3}:{seconds:02}  {text}", flush=True)

    plan = Plan(arguments.seed, arguments.steps, arguments.measure_every, arguments.held_out)
    history = History()
    try:
        say("fetching the model: SmolLM2-135M-Instruct")
        model = models.fetch("smollm2", arguments.model.absolute() if arguments.model else output / "model")
        services = configured(model, run_dir, plan.seed)
        say(f"starting production, Explorer, Trainer and sidecar; their log is {services.log_path}")
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
    draw(history, output / "reward.png")
    (output / "summary.json").write_text(json.dumps(_summary(plan, history, time.monotonic() - began), indent=2) + "\n")
    print(_table(history))
    print(", ".join(f"{count} {what}" for what, count in history.counts.items()))
    say(f"done; chart: {output / 'reward.png'}, numbers: {output / 'summary.json'}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the training tasks and of the sampling")
    parser.add_argument("--steps", type=int, default=8, help="training steps, each of 32 answers")
    parser.add_argument("--measure-every", type=int, default=2, help="steps between two measurements")
    parser.add_argument("--held-out", type=int, default=48, help="tasks that are measured on")
    parser.add_argument("--model", type=Path, help="where the model is, or is to be put (default: OUTPUT/model)")
    parser.add_argument("--output", type=Path, default=_OUTPUT)
    return parser.parse_args()


def _table(history: History) -> str:
    rows = [("production", history.production), *((f"policy, version {v}", s) for v, s in history.policy.items())]
    lines = ["", f"{'on held-out tasks':<20} {'reward':>7} {'tool called':>12} {'right number':>13}"]
    lines += [f"{name:<20} {s.reward:7.2f} {s.called:12.2f} {s.right:13.2f}" for name, s in rows if s is not None]
    return "\n".join([*lines, ""])


def _summary(plan: Plan, history: History, seconds: float) -> dict[str, object]:
    return {
        **asdict(plan),
        "production": _numbers(history.production),
        "policy": {version: _numbers(score) for version, score in history.policy.items()},
        "training": [{**_numbers(step.score), "version": step.version} for step in history.steps],
        "counts": history.counts,
        "seconds": round(seconds),
    }


def _numbers(score: Score | None) -> dict[str, float]:
    return {} if score is None else {"reward": round(score.reward, 4), **asdict(score)}


if __name__ == "__main__":
    sys.exit(main())
