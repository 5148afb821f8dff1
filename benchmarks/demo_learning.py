"""How much the demo's policy learns, over several seeds: writes a part of docs/results.md, and its chart.

    python benchmarks/demo_learning.py [--engine embedded|trinity|trinity-rloo] [--seeds N]

Each seed is a whole run of the demo's job, by examples/demo/run.py on the embedded engine or by
tests/trinity_full/run.py on the real Trinity: other training tasks, other sampling, the same held-out tasks.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results.md"
PARTS = (("reward", "reward"), ("called", "tool called"))

Summary = dict[str, Any]


@dataclass(frozen=True)
class Engine:
    """What serves and trains the policy: the script that runs the job on it, and how the page speaks of it."""

    name: str
    script: Path
    output: Path
    chart: str
    heading: str
    what: str
    algorithm: str = "GRPO"
    options: tuple[str, ...] = ()


ENGINES = {
    "embedded": Engine(
        name="embedded",
        script=ROOT / "examples" / "demo" / "run.py",
        output=ROOT / "demo-output",
        chart="learning.png",
        heading="The embedded engine",
        what="The demo (`make demo`): transformers serves, TRL trains.",
    ),
    "trinity": Engine(
        name="trinity",
        script=ROOT / "tests" / "trinity_full" / "run.py",
        output=ROOT / "trinity-full-output",
        chart="learning-trinity.png",
        heading="The real Trinity-RFT",
        what="The same job through the same sidecar (`make test-trinity-full`): `trinity run` 0.6.0 in modes serve and "
        "train, vLLM's CPU build and verl's GRPO, two Rays, from the shipped `explorer.yaml` and `trainer.yaml` with "
        "overlays ([how](../tests/trinity_full/README.md)). With its one engine the Explorer answers 500 while it "
        "loads a version.",
    ),
    "trinity-rloo": Engine(
        name="trinity-rloo",
        script=ROOT / "tests" / "trinity_full" / "run.py",
        output=ROOT / "trinity-full-output" / "rloo",
        chart="learning-trinity-rloo.png",
        heading="The real Trinity-RFT with RLOO",
        what="As above with `algorithm_type: rloo`, whose advantages the Trainer computes, and half the steps.",
        algorithm="RLOO",
        options=("--algorithm", "rloo", "--steps", "4"),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=list(ENGINES), default="embedded")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    engine = ENGINES[arguments.engine]
    summaries = [run(engine, seed) for seed in range(1, arguments.seeds + 1)]
    chart(summaries, ROOT / "docs" / "images" / engine.chart)
    PAGE.write_text(with_part(PAGE.read_text(), engine.name, part(engine, summaries)))


def run(engine: Engine, seed: int) -> Summary:
    output = engine.output / f"seed-{seed}"
    command = [sys.executable, engine.script, "--seed", str(seed), *engine.options]
    command += ["--output", output, "--model", engine.output / "model"]
    output.mkdir(parents=True, exist_ok=True)
    with (output / "printed.txt").open("w+") as printed:
        subprocess.run(command, check=True, stdout=printed)
    return summary_of(output)


def summary_of(output: Path) -> Summary:
    summary: Summary = json.loads((output / "summary.json").read_text())
    summary["printed"] = (output / "printed.txt").read_text().replace(f"{ROOT}/", "")
    return summary


def with_part(page: str, name: str, text: str) -> str:
    """The page with one engine's part replaced; the other's stays as it was measured."""
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->\n"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{PAGE}: expected the lines {begin.strip()} and {end.strip()}")
    return before + begin + text + end + after


def part(engine: Engine, summaries: Sequence[Summary]) -> str:
    versions = list(summaries[0]["policy"])
    first, last = versions[0], versions[-1]
    gains = [each["policy"][last]["reward"] - each["policy"][first]["reward"] for each in summaries]
    counts = summaries[0]["counts"]
    columns = [f"seed {each['seed']}" for each in summaries]
    lines = [
        f"## {engine.heading}",
        "",
        f"{engine.what} Written by",
        "",
        "```sh",
        f".venv/bin/python benchmarks/demo_learning.py --engine {engine.name} --seeds {len(summaries)}",
        "```",
        "",
        f"**Held-out reward of version {last} less that of version {first}: {spread(gains, '+.2f')}**",
        f"(mean ± standard deviation over {len(summaries)} seeds; the least gain is {min(gains):+.2f})."
        if len(gains) > 1
        else "(one seed).",
        "",
        f"![Held-out reward by version, {engine.heading}](images/{engine.chart})",
        "",
        f"- Each seed: {counts['steps']} steps of {engine.algorithm}; {counts['calls']} calls of the agent, "
        f"{counts['runs']} runs of the policy, {counts['commits']} commits.",
        f"- Machine: {os.cpu_count()} CPU cores ({platform.machine()}), no GPU. One run took "
        f"{spread([each['seconds'] / 60 for each in summaries], '.1f')} minutes.",
        "",
        "| on held-out tasks | " + " | ".join(columns) + " | mean ± standard deviation |",
        "|---|" + "---|" * (len(columns) + 1),
        *(row(f"production: {words}", [each["production"][key] for each in summaries]) for key, words in PARTS),
        *(row(f"version {last}: {words}", [each["policy"][last][key] for each in summaries]) for key, words in PARTS),
        "",
        "| reward by version | " + " | ".join(columns) + " | mean ± standard deviation |",
        "|---|" + "---|" * (len(columns) + 1),
        *(row(version, [each["policy"][version]["reward"] for each in summaries]) for version in versions),
        "",
        *printed_by(summaries[0], columns[0]),
    ]
    return "\n".join(lines)


def printed_by(summary: Summary, name: str) -> list[str]:
    """The lines of a page with what a run printed."""
    return [f"What {name} printed:", "", "```text", *summary["printed"].splitlines(), "```", ""]


def row(name: str, values: Sequence[float]) -> str:
    return f"| {name} | " + " | ".join(f"{each:.2f}" for each in values) + f" | {spread(values, '.2f')} |"


def spread(values: Sequence[float], form: str) -> str:
    if len(values) == 1:
        return f"{values[0]:{form}}"
    return f"{statistics.fmean(values):{form}} ± {statistics.stdev(values):{form.lstrip('+')}}"


def chart(summaries: Sequence[Summary], path: Path) -> None:
    versions = [int(version) for version in summaries[0]["policy"]]
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for (key, words), color in zip(PARTS, ("tab:blue", "tab:orange"), strict=True):
        each_seed = [[scores[key] for scores in each["policy"].values()] for each in summaries]
        means = [statistics.fmean(values) for values in zip(*each_seed, strict=True)]
        axes.plot(versions, means, "o-" if key == "reward" else "--", color=color, label=f"policy: {words}")
        if key == "reward":
            lows, highs = ([edge(values) for values in zip(*each_seed, strict=True)] for edge in (min, max))
            axes.fill_between(versions, lows, highs, color=color, alpha=0.15, label="policy: reward, all seeds")
    frozen = statistics.fmean(each["production"]["reward"] for each in summaries)
    axes.axhline(frozen, color="0.45", linewidth=2, label="production: reward (frozen)")
    axes.set(xlabel="version", ylabel="mean over held-out tasks", ylim=(-0.02, 1.02))
    axes.set_title(f"Held-out reward by version, mean of {len(summaries)} seeds")
    axes.grid(alpha=0.3)
    axes.legend(loc="center right", fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
