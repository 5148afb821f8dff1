"""Measure the embedded Trainer's memory by version: SmolLM2-135M at the demo's settings.

    python benchmarks/trainer_memory.py [--steps 200] [--longest] [--model DIR] [--source DIR]

The Trainer is a process of its own (`slipstream trainer`), on experiences made beforehand: four tasks of eight answers
a step, of random tokens and as long as the demo's, so that nothing else runs. With `--longest` a step is one task of
eight answers, as long as `overlays/small-cpu.yaml` lets them be. After each version, what it holds
(resident, without pages of files) and the most that it held since the version before.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from slipstream.embedded import checkpoints
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.experiences import Answer, ExperienceStore
from slipstream.local import model

ROOT = Path(__file__).parents[1]
_VOCABULARY = 49_000
_LOGPROB = -11.0  # of a token drawn evenly
_MIB = 2**20


class Batch(NamedTuple):
    """What a step is trained on. Lengths are in tokens; of questions and answers the shortest and the longest."""

    tasks: int
    runs: int
    instructions: int
    question: tuple[int, int]
    answer: tuple[int, int]
    max_model_len: int


DEMO = Batch(tasks=4, runs=8, instructions=180, question=(20, 40), answer=(8, 64), max_model_len=512)
LONGEST = Batch(tasks=1, runs=8, instructions=1400, question=(100, 130), answer=(384, 512), max_model_len=2048)


class Held(NamedTuple):
    """MiB, at a version: resident anonymous memory, and the most that was resident since the one before."""

    version: int
    now: float
    peak: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--longest", action="store_true", help="long answers in place of the demo's")
    parser.add_argument("--model", type=Path, help="a model directory (default: SmolLM2, fetched)")
    parser.add_argument("--source", type=Path, default=ROOT, help="a checkout of this repository, whose Trainer runs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        weights = arguments.model or model.fetch("smollm2", place / "model")
        rows = []
        began = time.monotonic()
        batch = LONGEST if arguments.longest else DEMO
        for held in measure(place, weights.absolute(), arguments.steps, arguments.source.absolute(), batch):
            rows.append(held)
            if held.version % 10 == 1 or held.version == arguments.steps:
                print(f"version {held.version:4}: {held.now:6.0f} MiB, at most {held.peak:6.0f}", flush=True)
    print(f"{time.monotonic() - began:.0f} s\n\n{table(rows)}")


def measure(place: Path, weights: Path, steps: int, source: Path, batch: Batch = DEMO) -> Iterator[Held]:
    """Train and look, version by version."""
    config = EngineConfig.model_validate(fields(place, weights, steps, batch))
    commit(config, steps, batch)
    file = place / "trainer.yaml"
    file.write_text(yaml.safe_dump(fields(place, weights, steps, batch)))
    command = [sys.executable, "-P", "-m", "slipstream", "--log-format", "json", "trainer", "--config", str(file)]
    environment = os.environ | {"PYTHONPATH": str(source / "service")}
    with (place / "trainer.log").open("w+") as log:
        trainer = subprocess.Popen(command, env=environment, stderr=log)
        try:
            seen, peak = 0, 0.0
            while (code := trainer.poll()) is None and seen < steps:
                version = checkpoints.latest_version(config.job_dir) or 0
                peak = max(peak, _status(trainer.pid, "VmRSS"))
                if version > seen:
                    yield Held(version, _status(trainer.pid, "RssAnon"), peak)
                    seen, peak = version, 0.0
                time.sleep(0.02)
            if seen < steps:
                log.seek(0)
                raise SystemExit(f"the Trainer ended with {code} after version {seen}:\n{log.read()[-4000:]}")
        finally:
            trainer.terminate()
            trainer.wait()


def fields(place: Path, weights: Path, steps: int, batch: Batch) -> dict[str, Any]:
    """As examples/demo/trainer.yaml, with a rate at which the weights stay where they are."""
    return {
        "mode": "train",
        "checkpoint_root_dir": str(place),
        "model": {
            "model_path": str(weights),
            "max_model_len": batch.max_model_len,
            "max_response_tokens": batch.answer[1],
        },
        "algorithm": {"algorithm_type": "grpo", "optimizer": {"lr": 1e-8, "weight_decay": 0.0}},
        "buffer": {"train_batch_size": batch.tasks * batch.runs},
        "trainer": {"max_checkpoints_to_keep": 2, "total_steps": steps + 1},
    }


def commit(config: EngineConfig, steps: int, batch: Batch) -> None:
    """Put the experiences of all steps into the buffer."""
    store = ExperienceStore(config.database_url, config.buffer.trainer_input.experience_buffer.name)
    source = np.random.default_rng(1)
    instructions = source.integers(10, _VOCABULARY, batch.instructions)
    for step in range(steps + 1):
        for task in range(batch.tasks):
            question = source.integers(10, _VOCABULARY, source.integers(*batch.question))
            prompt = np.concatenate([instructions, question])
            for run in range(batch.runs):
                name = f"{step}-{task}-{run}"
                answer = source.integers(10, _VOCABULARY, source.integers(*batch.answer))
                store.record([Answer(name, prompt, answer, np.full(len(answer), _LOGPROB), step)])
                store.feedback([name], float(source.random()), f"{step}-{task}", run)
        store.commit("grpo")
    store.close()


def table(rows: Sequence[Held]) -> str:
    """Each tenth part of the versions in a line."""
    size = max(len(rows) // 10, 1)
    lines = ["| versions | held after a version, MiB | at most, MiB |", "|---|---|---|"]
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        now = [held.now for held in part]
        lines.append(
            f"| {part[0].version} to {part[-1].version} | {min(now):.0f} to {max(now):.0f} "
            f"| {max(held.peak for held in part):.0f} |"
        )
    return "\n".join(lines)


def _status(pid: int, name: str) -> float:
    """A line of /proc/PID/status, in MiB; 0 when the process has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(rf"{name}:\s+(\d+) kB", text)
    return int(found[1]) * 1024 / _MIB if found else 0.0


if __name__ == "__main__":
    main()
