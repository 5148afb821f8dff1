"""One measurement's programs: production that is captured, the export, the training, and the version that is served.

Each is a process of its own, started by the command that a user would give, in the folder of the demo, whose tasks,
agent and reward are used.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import yaml

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "demo"
HERE = Path(__file__).parent
CAPTURE = HERE / "capture.yaml"
sys.path.insert(0, str(DEMO))

from agent import Agent  # noqa: E402 - of the demo's folder
from learning import ready  # noqa: E402
from reward import Score, mean, verify  # noqa: E402
from services import free_ports, set_environment  # noqa: E402
from tasks import Task, held_out_tasks, training_tasks  # noqa: E402

HELD_OUT = 48
Answered = TypeVar("Answered")

_AT_ONCE = 16
_CAPTURED = "slipstream_calls_captured_total"
_LOOK = 0.5
_LOOKS = 1200


class Rig:
    """A run in a folder of its own.

    Args:
        base: model directory that the policy starts from.
        production: model directory that production serves.

    Attributes:
        model: the name under which the policy is asked.
    """

    def __init__(self, run_dir: Path, base: Path, production: Path, seed: int) -> None:
        run_dir.mkdir(parents=True, exist_ok=True)
        self.run_dir = run_dir
        self.model = str(base)
        self._base = base
        self._production = production
        self._seed = seed
        self._ports = dict(zip(("production", "explorer", "sidecar"), free_ports(3), strict=True))

    def _environment(self, model: Path) -> dict[str, str]:
        set_environment(
            MODEL_PATH=model,
            RUN_DIR=self.run_dir,
            SEED=self._seed,
            BATCH=32,
            PRODUCTION_PORT=self._ports["production"],
            EXPLORER_PORT=self._ports["explorer"],
            SIDECAR_PORT=self._ports["sidecar"],
            DATA_TRAINING=HERE,
        )
        return dict(os.environ)

    @asynccontextmanager
    async def _program(self, model: Path, ready_url: str, *arguments: str) -> AsyncIterator[None]:
        with (self.run_dir / "programs.log").open("a") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "slipstream",
                *arguments,
                cwd=DEMO,
                env=self._environment(model),
                stdout=log,
                stderr=log,
            )
            try:
                await _answers(ready_url, process)
                yield
            finally:
                process.terminate()
                await process.wait()

    async def capture(self, tasks: Sequence[Task]) -> Score:
        """Have production answer users through the sidecar, which keeps the answers. Returns production's score."""
        production = f"http://127.0.0.1:{self._ports['production']}"
        sidecar = f"http://127.0.0.1:{self._ports['sidecar']}"
        async with (
            self._program(self._production, f"{production}/health", "explorer", "--config", "production.yaml"),
            self._program(self._production, f"{sidecar}/healthz", "serve", "--config", str(CAPTURE)),
        ):
            agent = Agent(f"{sidecar}/v1", str(self._production))
            async with httpx.AsyncClient(base_url=sidecar, timeout=30, trust_env=False) as control:
                await ready(control)
                replies = await in_parallel(
                    [agent.answer(task.question, _headers(at, task)) for at, task in enumerate(tasks)]
                )
                await _until(
                    control, "/metrics", lambda told: _count(told, "slipstream_calls_captured_total"), len(tasks)
                )
            await agent.close()
        return mean(verify(reply, task.reference) for reply, task in zip(replies, tasks, strict=True))

    async def groups(self, tasks: Sequence[Task]) -> None:
        """Have the policy, untrained, answer tasks eight times each, and the sidecar score the answers."""
        explorer = f"http://127.0.0.1:{self._ports['explorer']}"
        sidecar = f"http://127.0.0.1:{self._ports['sidecar']}"
        config = str(HERE / "groups.yaml")
        async with (
            self._program(self._base, f"{explorer}/health", "explorer", "--config", "explorer.yaml"),
            self._program(self._base, f"{sidecar}/healthz", "serve", "--config", config),
        ):
            agent = Agent(f"{sidecar}/v1", str(self._base))
            async with httpx.AsyncClient(base_url=sidecar, timeout=30, trust_env=False) as control:
                await ready(control)
                await in_parallel([agent.answer(task.question, _headers(at, task)) for at, task in enumerate(tasks)])
                await _until(control, "/status", lambda told: told.json()["groups"].get("ready", 0), len(tasks))
            await agent.close()

    async def imported(self, chats: Path, label: str) -> None:
        """Import a file for OpenAI's fine-tuning."""
        sidecar = f"http://127.0.0.1:{self._ports['sidecar']}"
        config = str(HERE / "capture.yaml")
        async with self._program(self._production, f"{sidecar}/healthz", "serve", "--config", config):
            arguments = ("--format", "openai-chat", "--label", label, "--url", sidecar)
            await asyncio.to_thread(self._command, "dataset", "import", str(chats), *arguments)

    def take_datasets(self, of: Path, job: bool = False) -> None:
        """Take what another run exported, and its policy's job too."""
        for part in ("datasets", "demo") if job else ("datasets",):
            shutil.copytree(of / part, self.run_dir / part, dirs_exist_ok=True)

    def written(self, data: str, dataset: Mapping[str, Any], epochs: int | None = None) -> Path:
        """Write one of this folder's data files with other settings into the run's folder; returns its path."""
        whole = yaml.safe_load((HERE / data).read_text())
        whole["dataset"] |= dataset
        if epochs is not None:
            overlay = self.run_dir / "epochs.yaml"
            overlay.write_text(yaml.safe_dump({"buffer": {"total_epochs": epochs}}))
            whole["train"]["overlays"].append(str(overlay))
        path = self.run_dir / data
        path.write_text(yaml.safe_dump(whole))
        return path

    def export(self, data: Path, sidecar: Path = CAPTURE) -> float:
        """Export a data set; returns the command's seconds."""
        return self._command("dataset", "export", "--data", str(data), "--config", str(sidecar), "--replace")

    def train(self, data: Path, sidecar: Path = CAPTURE) -> float:
        """Train on a data set; returns the command's seconds."""
        return self._command("train", "--config", str(data), "--sidecar", str(sidecar))

    def rows(self, dataset: str) -> int:
        """The rows to train on of a data set."""
        manifest = json.loads((self.run_dir / "datasets" / dataset / "manifest.json").read_text())
        return int(manifest["counts"]["rows"]["train"])

    def trained_on(self) -> dict[str, Any]:
        """Return what the newest version says of its training."""
        found = (self.run_dir / "demo" / "policy").glob("global_step_*/**/trained_on.json")
        newest = max(found, key=lambda path: path.stat().st_mtime)
        about: dict[str, Any] = json.loads(newest.read_text())
        return about

    def _command(self, *arguments: str) -> float:
        began = time.monotonic()
        with (self.run_dir / "programs.log").open("a") as log:
            subprocess.run(
                [sys.executable, "-m", "slipstream", *arguments],
                cwd=DEMO,
                env=self._environment(self._base),
                stdout=log,
                stderr=log,
                check=True,
            )
        return time.monotonic() - began

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """An Explorer on the job, which serves its newest version; yields its base URL."""
        explorer = f"http://127.0.0.1:{self._ports['explorer']}"
        async with self._program(self._base, f"{explorer}/health", "explorer", "--config", "explorer.yaml"):
            yield f"{explorer}/v1"

    async def answered(self, url: str) -> Score:
        """The score of what is served there, on the held-out tasks."""
        tasks = held_out_tasks(HELD_OUT)
        agent = Agent(url, self.model)
        replies = await in_parallel([agent.answer(task.question) for task in tasks])
        await agent.close()
        return mean(verify(reply, task.reference) for reply, task in zip(replies, tasks, strict=True))

    async def measure(self) -> Score:
        """The score of the version that an Explorer on the job serves, on the held-out tasks."""
        async with self.serving() as url:
            return await self.answered(url)


async def _until(control: httpx.AsyncClient, path: str, count: Callable[[httpx.Response], float], wanted: int) -> None:
    """Wait until a count reaches a number.

    Raises:
        SystemExit: it does not, within ten minutes.
    """
    for _ in range(_LOOKS):
        if count(await control.get(path)) >= wanted:
            return
        await asyncio.sleep(_LOOK)
    raise SystemExit(f"data_training: {path} did not come to {wanted}")


def _headers(number: int, task: Task) -> dict[str, str]:
    return {
        "x-slipstream-session-id": f"user-{number}",
        "x-slipstream-metadata": json.dumps({"reference": task.reference}),
    }


def _count(metrics: httpx.Response, name: str) -> float:
    """A counter without labels."""
    return next((float(line.split()[1]) for line in metrics.text.splitlines() if line.startswith(f"{name} ")), 0.0)


def captured_tasks(seed: int, count: int) -> Sequence[Task]:
    """Questions of users, none of which is held out."""
    return training_tasks(seed, count, held_out_tasks(HELD_OUT))


async def in_parallel(asked: Sequence[Awaitable[Answered]]) -> list[Answered]:
    """Await all, some at once."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(each: Awaitable[Answered]) -> Answered:
        async with room:
            return await each

    return await asyncio.gather(*(one(each) for each in asked))


async def _answers(url: str, process: asyncio.subprocess.Process) -> None:
    async with httpx.AsyncClient(timeout=5, trust_env=False) as client:
        for _ in range(_LOOKS):
            if process.returncode is not None:
                raise SystemExit(f"data_training: a program ended with {process.returncode}; see programs.log")
            try:
                if (await client.get(url)).status_code < 500:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(_LOOK)
    raise SystemExit(f"data_training: nothing answered at {url}")
