"""Measure how much a policy learns from data sets, over several seeds, and write a part of docs/training-data.md.

    PYTHONPATH=benchmarks python -m data_training distil --teacher MODEL [--seeds N] [--write docs/training-data.md]
    PYTHONPATH=benchmarks python -m data_training dpo [--seeds N] [--write docs/training-data.md]

Tasks, agent and reward are the demo's. The base model is SmolLM2-135M, and what is measured is what an Explorer serves
that found the new version in the checkpoint directory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from data_training.rig import HELD_OUT, HERE, ROOT, Rig, captured_tasks

_CALLS = 200
_GROUPS = 48


@dataclass(frozen=True)
class Result:
    """One seed's figures: rewards on held-out tasks, rows, and seconds."""

    seed: int
    production: float
    before: float
    after: float
    rows: int
    exported: float
    trained: float
    whole: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", choices=("distil", "dpo"))
    parser.add_argument(
        "--teacher", type=Path, help="model directory that production serves, such as a demo's last version"
    )
    parser.add_argument("--base", type=Path, default=ROOT / ".cache" / "models" / "smollm2")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--output", type=Path, default=ROOT / "data-training-output")
    parser.add_argument("--write", type=Path, help="the page whose part is replaced")
    arguments = parser.parse_args()
    if arguments.measured == "distil" and arguments.teacher is None:
        parser.error("--teacher: expected a model directory for distil, found none")
    results = []
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        output = arguments.output.absolute() / f"{arguments.measured}-{seed}"
        teacher = (arguments.teacher or arguments.base).absolute()
        rig = Rig(output, arguments.base.absolute(), teacher, seed)
        results.append(asyncio.run(_one(arguments.measured, rig, seed)))
        print(json.dumps(asdict(results[-1])), flush=True)
        (output / "result.json").write_text(json.dumps(asdict(results[-1]), indent=2) + "\n")
    part = _part(arguments.measured, results)
    print(part)
    if arguments.write is not None:
        arguments.write.write_text(_with_part(arguments.write.read_text(), arguments.measured, part))


async def _one(measured: str, rig: Rig, seed: int) -> Result:
    before = await rig.measure()
    began = time.monotonic()
    if measured == "distil":
        production = (await rig.capture(captured_tasks(seed, _CALLS))).reward
    else:
        production = before.reward
        await rig.groups(captured_tasks(seed, _GROUPS))
    sidecar = HERE / ("capture.yaml" if measured == "distil" else "groups.yaml")
    data = HERE / f"{measured}.yaml"
    exported = rig.command("dataset", "export", "--data", str(data), "--config", str(sidecar), "--replace")
    trained = rig.command("train", "--config", str(data), "--sidecar", str(sidecar))
    whole = time.monotonic() - began
    after = await rig.measure()
    name = {"distil": "distil", "dpo": "pairs"}[measured]
    manifest = json.loads((rig.run_dir / "datasets" / name / "manifest.json").read_text())
    rows = manifest["counts"]["rows"]["train"]
    return Result(seed, production, before.reward, after.reward, rows, exported, trained, whole)


_WHAT = {
    "distil": f"Supervised training of the base model on {_CALLS} captured answers of a teacher, those with a reward "
    "of at least 0.8.",
    "dpo": f"DPO on pairs of the base model's own answers: {_GROUPS} questions, eight answers each.",
}


def _part(measured: str, results: list[Result]) -> str:
    lines = [
        _WHAT[measured],
        "",
        "| seed | production | before | after | rows | export | training | from the first call to the version |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in results:
        lines.append(
            f"| {each.seed} | {each.production:.2f} | {each.before:.2f} | {each.after:.2f} | {each.rows} "
            f"| {each.exported:.0f} s | {each.trained:.0f} s | {each.whole / 60:.1f} min |"
        )
    command = f"PYTHONPATH=benchmarks python -m data_training {measured}" + (
        " --teacher MODEL" if measured == "distil" else ""
    )
    lines += [
        "",
        f"Rewards are means over {HELD_OUT} held-out tasks. {platform.machine()}, 2 cores; `{command}`.",
        "",
    ]
    return "\n".join(lines)


def _with_part(page: str, name: str, text: str) -> str:
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->\n"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        sys.exit(f"data_training: expected the lines {begin.strip()} and {end.strip()} in the page")
    return before + begin + text + end + after


if __name__ == "__main__":
    main()
