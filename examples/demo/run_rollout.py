"""The demo of rollouts: a better version is proven on live users and promoted, a bad one is proven harmful.

    python examples/demo/run_rollout.py [--seed N] [--steps N] [--output DIR]

Everything runs on this machine; what it writes is under `demo-output/rollout/`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
from canary import Decision, findings
from learning import DemoError
from live import Live
from openai import OpenAIError
from outcome import fresh, stopwatch
from reward import mean
from rollout_chart import draw
from services import configured, run_beside
from users import Answered

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
    try:
        say(f"fetching the model: {models.SMOLLM2}")
        model = models.fetch("smollm2", arguments.model.absolute())
        threads = max(1, (os.cpu_count() or 1) // 2)  # production and lane answer at the same time
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
        services = configured(model, run_dir, arguments.seed, "sidecar-rollout.yaml")
        say(f"starting production, Explorer, Trainer, lane and sidecar; their log is {services.log_path}")
        live = Live(arguments.seed, arguments.steps, services, str(model), run_dir / "demo" / "policy", say)
        finished = asyncio.run(run_beside(services, live.go()))
    except (SlipstreamError, DemoError) as error:
        print(f"demo-rollout: {error}", file=sys.stderr)
        return 1
    except (httpx.HTTPError, OpenAIError) as error:
        print(f"demo-rollout: stopped, or a service failed ({error}); see {run_dir}/services.log", file=sys.stderr)
        return 1
    if not finished or live.users is None:
        print("demo-rollout: stopped", file=sys.stderr)
        return 1
    draw(live.users.answered, live.decisions, live.users.began_at, output / "rollout.png")
    summary = _summary(live, live.users.answered, time.monotonic() - began)
    (output / "rollout.json").write_text(json.dumps(summary, indent=2) + "\n")
    print("", *map(findings, live.ends), "", _table(summary["users"]), sep="\n")
    say(f"done; chart: {output / 'rollout.png'}, numbers: {output / 'rollout.json'}")
    if not decided(live.ends):
        print("demo-rollout: expected the first version promoted with proof, the second rolled back", file=sys.stderr)
        return 1
    return 0


def decided(ends: Sequence[Decision]) -> bool:
    """True if the first rollout ended with a version that is proven better, and the second by a harm that is proven."""
    if [end.action for end in ends] != ["promote", "roll_back"]:
        return False
    better = ends[0].evidence["objective"]["better"]
    return bool(better["proven"]) and ends[1].reason.startswith("harm is proven")


def _summary(live: Live, answered: Sequence[Answered], seconds: float) -> dict[str, Any]:
    by: dict[str, list[Answered]] = {}
    for each in answered:
        by.setdefault(each.by, []).append(each)
    scores = {name: mean(each.score for each in some) for name, some in sorted(by.items())}
    return {
        "seed": live.seed,
        "steps": live.steps,
        "held_out": {version: score.reward for version, score in live.history.policy.items()},
        "users": {name: {"answers": len(by[name]), "reward": score.reward} for name, score in scores.items()},
        "decisions": [asdict(decision) for decision in live.decisions],
        "began": None if live.users is None else live.users.began_at,
        "seconds": round(seconds),
        "cpu_seconds": round(_cpu_seconds()),
    }


def _cpu_seconds() -> float:
    """CPU time of this program and of all that it has started and ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _table(users: dict[str, Any]) -> str:
    lines = [f"{'users were answered by':<24} {'answers':>8} {'mean reward':>12}"]
    lines += [f"{name.replace(':', ' '):<24} {of['answers']:8} {of['reward']:12.2f}" for name, of in users.items()]
    return "\n".join([*lines, ""])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the tasks, of the sampling and of the noise")
    parser.add_argument("--steps", type=int, default=4, help="training steps, each of 32 answers")
    parser.add_argument("--model", type=Path, default=_OUTPUT / "model", help="where the model is, or is to be put")
    parser.add_argument("--output", type=Path, default=_OUTPUT / "rollout")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
