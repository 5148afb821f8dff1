"""Measure memory and time of trainings on a data set, and compare them with their estimates.

    python benchmarks/training_estimate.py [--rows 8] [--model DIR] [--only sft]

Three settings of SmolLM2-135M: SFT of all weights, SFT of adapters of rank 16, DPO of all weights; prompts of about 140
tokens and answers of 20 to 40, four a step. Each setting runs in a process of its own, with one thread, one after the
other. The speed of the machine is measured before and after each; on a busy machine the seconds of CPU say more than
those of the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from slipstream.datasets.row import Kind, Provenance, Row, Source
from slipstream.local import model

SETTINGS: dict[str, tuple[Kind, str, list[dict[str, int]] | None]] = {
    "sft": (Kind.SFT, "sft", None),
    "sft-lora": (Kind.SFT, "sft", [{"lora_rank": 16}]),
    "dpo": (Kind.PREFERENCE, "dpo", None),
}
_SENTENCE = " the order was sent to a wrong address and the customer asks for a refund of the whole amount"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--model", type=Path, help="a model directory (default: SmolLM2, fetched)")
    parser.add_argument("--only", choices=SETTINGS, help="one setting, in this process")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        weights = arguments.model or model.fetch("smollm2", Path(folder) / "model")
        if arguments.only:
            print(json.dumps(measure(arguments.only, weights.absolute(), arguments.rows, Path(folder))))
            return
        print("| setting | memory, GB | estimate | clock, s | CPU, s | estimate | |\n|---|---|---|---|---|---|---|")
        for name in SETTINGS:
            print(_line(name, _in_a_process(name, weights.absolute(), arguments.rows)), flush=True)


def rows(kind: Kind, count: int) -> list[Row]:
    """Rows of made-up words."""
    origin = Provenance("t", "s", "default", Source.POLICY)
    return [
        Row(
            kind,
            [{"role": "user", "content": f"{_SENTENCE * 7} {number}?"}],
            {"role": "assistant", "content": f"{_SENTENCE * 2} {number}."},
            origin,
            rejected={"role": "assistant", "content": f"{_SENTENCE} no."} if kind is Kind.PREFERENCE else None,
        )
        for number in range(count)
    ]


def measure(name: str, weights: Path, count: int, folder: Path) -> dict[str, float]:
    """Train one setting in this process; bytes, seconds, and their estimates."""
    from slipstream.datasets.trained_dataset import TrainedDataset
    from slipstream.embedded.config import EngineConfig
    from slipstream.embedded.estimate import memory, seconds
    from slipstream.embedded.supervised import train_rows
    from slipstream.embedded.training_plan import plan, this_device

    kind, algorithm, lora = SETTINGS[name]
    config = EngineConfig.model_validate(
        {
            "mode": "train",
            "checkpoint_root_dir": str(folder / "job"),
            "model": {"model_path": str(weights), "max_model_len": 1024, "lora_configs": lora},
            "algorithm": {"algorithm_type": algorithm, "optimizer": {"lr": 1e-5}},
            "buffer": {"train_batch_size": 4},
        }
    )
    dataset = TrainedDataset("benchmark", "", kind)
    planned = plan(config, rows(kind, count), dataset, folder / "rows")
    before = this_device(config)
    clock, cpu = time.perf_counter(), time.process_time()
    train_rows(config, rows(kind, count), dataset)
    clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
    speeds = [before.speed, this_device(config).speed]
    took = seconds(planned.model, planned.here.setting, planned.here.tokens, planned.epochs, before) * before.speed
    return {
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "estimated_memory": memory(planned.model, planned.here.setting).total,
        "clock": clock,
        "cpu": cpu,
        "estimated_seconds": took / max(speeds),
        "gflops": max(speeds) / 1e9,
        "tokens": planned.here.tokens,
    }


def _in_a_process(name: str, weights: Path, count: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--only", name, "--model", str(weights), "--rows", str(count)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _line(name: str, found: dict[str, float]) -> str:
    takes, times = found["estimated_memory"], found["estimated_seconds"]
    return (
        f"| {name} | {found['memory'] / 1e9:.2f} | {takes / 1e9:.2f} ({takes / found['memory'] - 1:+.0%}) "
        f"| {found['clock']:.0f} | {found['cpu']:.0f} | {times:.0f} ({times / found['cpu'] - 1:+.0%}) "
        f"| {found['tokens']} tokens, {found['gflops']:.0f} GFLOPS"
    )


if __name__ == "__main__":
    main()
