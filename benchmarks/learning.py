"""How much the demo's policy learns, over several seeds: writes docs/results.md and docs/images/learning.png.

    python benchmarks/learning.py [--seeds N]

Each seed is a whole run of examples/demo/run.py: other training tasks, other sampling, the same held-out tasks. Takes
as many times as long as the demo.
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
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "demo-output"
PARTS = (("reward", "reward"), ("called", "tool called"), ("right", "right number"))

Summary = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    summaries = [run(seed) for seed in range(1, arguments.seeds + 1)]
    chart(summaries, ROOT / "docs" / "images" / "learning.png")
    (ROOT / "docs" / "results.md").write_text(page(summaries))


def run(seed: int) -> Summary:
    output = OUTPUT / f"seed-{seed}"
    subprocess.run(
        [
            *(sys.executable, ROOT / "examples" / "demo" / "run.py", "--seed", str(seed)),
            *("--output", output, "--model", OUTPUT / "model"),
        ],
        check=True,
    )
    summary: Summary = json.loads((output / "summary.json").read_text())
    return summary


def page(summaries: Sequence[Summary]) -> str:
    versions = list(summaries[0]["policy"])
    first, last = versions[0], versions[-1]
    gains = [each["policy"][last]["reward"] - each["policy"][first]["reward"] for each in summaries]
    counts = summaries[0]["counts"]
    columns = [f"seed {each['seed']}" for each in summaries]
    lines = [
        "# Results",
        "",
        "What the loop does for the policy model, measured with the demo (`make demo`). Written by",
        "",
        "```sh",
        f".venv/bin/python benchmarks/learning.py --seeds {len(summaries)}",
        "```",
        "",
        f"**Held-out reward of version {last} less that of version {first}: {spread(gains, '+.2f')}**",
        f"(mean ± standard deviation over {len(summaries)} seeds; the least gain is {min(gains):+.2f}).",
        "",
        "![Held-out reward by version](images/learning.png)",
        "",
        "## Set-up",
        "",
        "- Agent: the openai SDK and a calculator tool; see [examples/demo](../examples/demo/README.md).",
        "- Tasks: `chain_sum` of reasoning-gym, two or three numbers of two digits. "
        f"{summaries[0]['held_out']} are held out, the same for every seed, and never trained on.",
        "- Reward: 0.4 for a tool call that can be carried out, 0.6 for the right number. Both are reported.",
        "- Production and version 0 are SmolLM2-135M-Instruct, and production stays so. Temperature 1 everywhere.",
        f"- Each seed: {counts['steps']} steps of GRPO; {counts['calls']} calls of the agent, {counts['runs']} runs of "
        f"the policy, {counts['commits']} commits.",
        f"- Machine: {os.cpu_count()} CPU cores ({platform.machine()}), no GPU. One run took "
        f"{spread([each['seconds'] / 60 for each in summaries], '.1f')} minutes.",
        "",
        f"## Policy, version {last}, against production",
        "",
        "| on held-out tasks | " + " | ".join(columns) + " | mean ± standard deviation |",
        "|---|" + "---|" * (len(columns) + 1),
        *(row(f"production: {words}", [each["production"][part] for each in summaries]) for part, words in PARTS),
        *(row(f"version {last}: {words}", [each["policy"][last][part] for each in summaries]) for part, words in PARTS),
        "",
        "## Reward by version",
        "",
        "| version | " + " | ".join(columns) + " | mean ± standard deviation |",
        "|---|" + "---|" * (len(columns) + 1),
        *(row(version, [each["policy"][version]["reward"] for each in summaries]) for version in versions),
        "",
    ]
    return "\n".join(lines)


def row(name: str, values: Sequence[float]) -> str:
    return f"| {name} | " + " | ".join(f"{each:.2f}" for each in values) + f" | {spread(values, '.2f')} |"


def spread(values: Sequence[float], form: str) -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):{form}} ± {deviation:{form.lstrip('+')}}"


def chart(summaries: Sequence[Summary], path: Path) -> None:
    versions = [int(version) for version in summaries[0]["policy"]]
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for (part, words), color in zip(PARTS, ("tab:blue", "tab:orange", "tab:green"), strict=True):
        each_seed = [[scores[part] for scores in each["policy"].values()] for each in summaries]
        means = [statistics.fmean(values) for values in zip(*each_seed, strict=True)]
        axes.plot(versions, means, "o-" if part == "reward" else "--", color=color, label=f"policy: {words}")
        if part == "reward":
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
