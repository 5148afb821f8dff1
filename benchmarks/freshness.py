"""Seconds from the 2xx of `POST /feedback` to the first answer of a version that was trained on it.

    python benchmarks/freshness.py [--rounds N] [--write docs/benchmarks.md]

The demo's agent, model and settings (examples/demo): four tasks a round, each answered eight times by the policy. The
reward of an answer is feedback here, posted by a program as soon as it sees the answer. All moments are of one clock:
the 202, what `GET /tasks` says, the times of the Trainer's files, and what the Explorer says and answers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples" / "demo"))  # before this folder, which has a module `learning` too

from agent import Agent  # noqa: E402
from calculator import reply_to_user  # noqa: E402
from learning import DemoError, ready  # noqa: E402
from outcome import fresh  # noqa: E402
from reward import verify  # noqa: E402
from services import Services, configured, run_beside  # noqa: E402
from tasks import TASKS_A_STEP, Task, training_tasks  # noqa: E402

from slipstream.local import model as models  # noqa: E402
from slipstream.trinity.checkpoint_files import TRAINED_ON, VERSION_MARKER, step_directory  # noqa: E402

OUTPUT = ROOT / "demo-output"
STAGES = (
    ("group", "waiting for the group: the other answers to the same task have their feedback"),
    ("commit", "commit: 32 answers are ready and delivered"),
    ("training", "training: the gradient, and the step"),
    ("export", "export: weights are written and published"),
    ("load", "load: the Explorer serves the version"),
    ("answer", "its first answer, of one token"),
)
_POLL = 0.05
_WITHIN = 900.0
_BEGIN, _END = "<!-- begin freshness -->\n", "<!-- end freshness -->\n"


@dataclass
class Moments:
    """Unix seconds; `feedback` of each answer, `ready` of each task."""

    feedback: dict[str, list[float]] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)
    delivered: float = 0.0
    trained: float = 0.0
    published: float = 0.0
    served: float = 0.0
    answered: float = 0.0

    def stages(self) -> list[dict[str, float]]:
        """Seconds of each stage, for each feedback."""
        shared = {
            "training": self.trained - self.delivered,
            "export": self.published - self.trained,
            "load": self.served - self.published,
            "answer": self.answered - self.served,
        }
        return [
            {"group": self.ready[task] - at, "commit": self.delivered - self.ready[task], **shared}
            for task, posted in self.feedback.items()
            for at in posted
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="versions, each of 32 answers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", type=Path, default=OUTPUT / "model")
    parser.add_argument("--write", type=Path, help="the page that has the table")
    arguments = parser.parse_args()
    run_dir = fresh(OUTPUT / "freshness")
    model = models.fetch("smollm2", arguments.model.absolute())
    page = None if arguments.write is None else arguments.write.absolute()
    os.environ["SLIPSTREAM_REWARDS"] = "{calculators: [feedback: {}], grace: 600s}"
    services = configured(model, run_dir, arguments.seed)
    found: list[dict[str, float]] = []
    measuring = measure(services, str(model), run_dir / "demo" / "policy", arguments, found)
    if not asyncio.run(run_beside(services, measuring)):
        raise SystemExit("stopped")
    text = table(found, arguments.rounds)
    print(text)
    if page is not None:
        page.write_text(with_table(page.read_text(), text))


async def measure(
    services: Services, model: str, job: Path, arguments: argparse.Namespace, found: list[dict[str, float]]
) -> None:
    tasks = training_tasks(arguments.seed, arguments.rounds * TASKS_A_STEP, ())
    agent = Agent(services.agent_url, model)
    policy = httpx.AsyncClient(base_url=services.policy_url.removesuffix("/v1"), timeout=60, trust_env=False)
    async with policy, httpx.AsyncClient(base_url=services.sidecar_url, timeout=60, trust_env=False) as sidecar:
        await ready(sidecar)
        for number in range(1, arguments.rounds + 1):
            chosen = {
                f"round-{number}-task-{place}": task
                for place, task in enumerate(tasks[(number - 1) * TASKS_A_STEP : number * TASKS_A_STEP])
            }
            await asyncio.gather(*(ask(agent, name, task) for name, task in chosen.items()))
            moments = Moments()
            await asyncio.gather(*(teach(sidecar, name, task, moments) for name, task in chosen.items()))
            await reach_users(policy, job, number, model, moments)
            found += moments.stages()
            total = sorted(sum(each.values()) for each in moments.stages())
            print(f"round {number} of {arguments.rounds}: {total[len(total) // 2]:.1f} s in the median", flush=True)
    await agent.close()


async def ask(agent: Agent, name: str, task: Task) -> None:
    headers = {"x-slipstream-task-id": name, "x-slipstream-mark": "demo"}
    await agent.answer(task.question, headers)


async def teach(sidecar: httpx.AsyncClient, name: str, task: Task, moments: Moments) -> None:
    """Posts feedback on each answer of the policy to a task as it comes, and waits until all of it is delivered."""
    posted: set[str] = set()
    deadline = time.monotonic() + _WITHIN
    while time.monotonic() < deadline:
        seen = await sidecar.get(f"/tasks/{name}")
        for group in seen.json()["groups"] if seen.is_success else ():
            for run in group["runs"]:
                if run["msg_id"] and run["msg_id"] not in posted and run.get("answer"):
                    posted.add(run["msg_id"])
                    await post(sidecar, run, task)
                    moments.feedback.setdefault(name, []).append(time.time())
            if group["state"] in ("ready", "committing", "delivered"):
                moments.ready.setdefault(name, time.time())
            if group["state"] == "delivered":
                moments.delivered = max(moments.delivered, time.time())
                return
        await asyncio.sleep(_POLL)
    raise DemoError(f"{name} was not delivered within {_WITHIN:g} s")


async def post(sidecar: httpx.AsyncClient, run: dict[str, Any], task: Task) -> None:
    answer = run["answer"]
    reply = reply_to_user(answer.get("content") or "", answer.get("tool_calls") or [])
    body = {"msg_id": run["msg_id"], "reward": verify(reply, task.reference).reward}
    (await sidecar.post("/feedback", json=body)).raise_for_status()


async def reach_users(policy: httpx.AsyncClient, job: Path, version: int, model: str, moments: Moments) -> None:
    """Waits for the version that was trained on this round, and asks it."""
    deadline = time.monotonic() + _WITHIN
    while (await policy.get("/metrics")).json()["rollout/model_0/model_version"] < version:
        if time.monotonic() > deadline:
            raise DemoError(f"version {version} was not served within {_WITHIN:g} s")
        await asyncio.sleep(_POLL)
    moments.served = time.time()
    body = {"model": model, "messages": [{"role": "user", "content": "1 + 1 ="}], "max_tokens": 1}
    (await policy.post("/v1/chat/completions", json=body)).raise_for_status()
    moments.answered = time.time()
    step = step_directory(job, version)
    trained_on = json.loads((step / TRAINED_ON).read_text())["msg_ids"]
    expected = sum(map(len, moments.feedback.values()))
    if len(trained_on) != expected:
        raise DemoError(f"version {version}: expected {expected} answers that it was trained on, found {trained_on}")
    moments.trained = (step / "actor" / "huggingface" / "config.json").stat().st_mtime
    moments.published = (job / VERSION_MARKER).stat().st_mtime


def table(found: Sequence[dict[str, float]], rounds: int) -> str:
    rows = [(words, [each[name] for each in found]) for name, words in STAGES]
    rows.append(("**all**", [sum(each.values()) for each in found]))
    lines = [
        f"{len(found)} answers in {rounds} versions, on {os.cpu_count()} CPU cores ({platform.machine()}), no GPU.",
        "",
        "| seconds | p50 | p99 |",
        "|---|---:|---:|",
        *(f"| {words} | {percentile(values, 0.5):.2f} | {percentile(values, 0.99):.2f} |" for words, values in rows),
        "",
    ]
    return "\n".join(lines)


def percentile(values: Sequence[float], part: float) -> float:
    """The least value that at least this part of all is not above."""
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * part) - 1]


def with_table(page: str, text: str) -> str:
    before, _, rest = page.partition(_BEGIN)
    _, found, after = rest.partition(_END)
    if not found:
        raise SystemExit(f"expected the lines {_BEGIN.strip()} and {_END.strip()} in the page")
    return before + _BEGIN + text + _END + after


if __name__ == "__main__":
    main()
