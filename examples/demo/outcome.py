"""Output of a run of the main job: lines while it goes on, and at the end a chart and its numbers."""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from chart import draw
from learning import History, Plan
from reward import Score
from tasks import TASKS_A_STEP


def plan_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that make a `Plan`, as `plan_of` reads them."""
    parser.add_argument("--seed", type=int, default=1, help="of the training tasks and of the sampling")
    parser.add_argument("--steps", type=int, default=8, help="training steps")
    parser.add_argument("--tasks-a-step", type=int, default=TASKS_A_STEP, help="the policy answers each eight times")
    parser.add_argument("--measure-every", type=int, default=2, help="steps between two measurements")
    parser.add_argument("--held-out", type=int, default=48, help="tasks that are measured on")
    parser.add_argument("--model", type=Path, help="where the model is, or is to be put (default: OUTPUT/model)")


def plan_of(arguments: argparse.Namespace) -> Plan:
    return Plan(
        arguments.seed,
        arguments.steps,
        arguments.measure_every,
        arguments.held_out,
        tasks_a_step=arguments.tasks_a_step,
    )


def fresh(run_dir: Path) -> Path:
    """Empties the folder of a run, or makes it; returns it."""
    shutil.rmtree(run_dir, ignore_errors=True)
    run_dir.mkdir(parents=True)
    return run_dir


def stopwatch(began: float) -> Callable[[str], None]:
    """Prints a text after the time that has passed since `began`, of `time.monotonic`."""

    def say(text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - began), 60)
        print(f"{minutes:3}:{seconds:02}  {text}", flush=True)

    return say


def write(plan: Plan, history: History, seconds: float, output: Path) -> None:
    """Writes `reward.png` and `summary.json`."""
    draw(history, output / "reward.png")
    summary = {
        **asdict(plan),
        "production": _numbers(history.production),
        "policy": {version: _numbers(score) for version, score in history.policy.items()},
        "training": [
            {**_numbers(step.score), "version": step.version, "seconds": round(step.seconds)} for step in history.steps
        ],
        "counts": history.counts,
        "seconds": round(seconds),
    }
    (output / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")


def _numbers(score: Score | None) -> dict[str, float]:
    return {} if score is None else asdict(score)
