"""`make demo-rollout` over several seeds: writes a part of docs/rollouts.md, and the chart of the first seed.

python benchmarks/demo_rollouts.py [--seeds N]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from learning import printed_by, spread, with_part

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "rollouts.md"
CHART = ROOT / "docs" / "images" / "demo-rollout.png"
SCRIPT = ROOT / "examples" / "demo" / "run_rollout.py"
OUTPUT = ROOT / "demo-output"

Summary = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--again", action="store_true", help="write the page from what earlier runs have left")
    arguments = parser.parse_args()
    seeds = range(1, arguments.seeds + 1)
    if not arguments.again:
        for seed in seeds:
            run(seed)
    summaries = [summary_of(folder(seed)) for seed in seeds]
    CHART.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder(1) / "rollout.png", CHART)
    PAGE.write_text(with_part(PAGE.read_text(), "demo", part(summaries)))


def folder(seed: int) -> Path:
    return OUTPUT / f"rollout-seed-{seed}"


def run(seed: int) -> None:
    """Raises CalledProcessError if not both decisions came."""
    output = folder(seed)
    output.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, SCRIPT, "--seed", str(seed), "--output", output, "--model", OUTPUT / "model"]
    with (output / "printed.txt").open("w") as printed:
        subprocess.run(command, check=True, stdout=printed)


def summary_of(output: Path) -> Summary:
    summary: Summary = json.loads((output / "rollout.json").read_text())
    summary["printed"] = (output / "printed.txt").read_text().replace(f"{ROOT}/", "")
    return summary


def part(summaries: Sequence[Summary]) -> str:
    columns = [f"seed {each['seed']}" for each in summaries]
    rows = [rows_of(each) for each in summaries]
    minutes = [each["seconds"] / 60 for each in summaries]
    cpu = [each["cpu_seconds"] / 60 for each in summaries]
    lines = [
        "| | " + " | ".join(columns) + " |",
        "|---|" + "---:|" * len(columns),
        *("| " + name + " | " + " | ".join(row[name] for row in rows) + " |" for name in rows[0]),
        "",
        f"Machine: {os.cpu_count()} CPU cores ({platform.machine()}), no GPU. One run took {spread(minutes, '.1f')} "
        f"minutes, and {spread(cpu, '.1f')} minutes of CPU time. Written by",
        "",
        "```sh",
        f".venv/bin/python benchmarks/demo_rollouts.py --seeds {len(summaries)}",
        "```",
        "",
        *printed_by(summaries[0], columns[0]),
    ]
    return "\n".join(lines)


def rows_of(summary: Summary) -> dict[str, str]:
    """One seed's figures by the names of their rows."""
    promoted, rolled_back = (end_of(summary, action) for action in ("promote", "roll_back"))
    held_out, users = list(summary["held_out"].values()), summary["users"]
    better, harm = promoted["evidence"]["objective"], rolled_back["evidence"]["guardrails"]["reward"]
    good = users[f"version:{promoted['version']}"]
    bad = users.get(f"version:{rolled_back['version']}", {"answers": 0, "reward": 0.0})
    return {
        "reward on held-out tasks, before and after training": f"{held_out[0]:.2f}, {held_out[-1]:.2f}",
        "**promoted**, after sessions of the version + of production": sessions(promoted),
        "difference of reward, and its 95% interval": interval(better),
        "log e for *better*, and needed": claim(better["better"]),
        "minutes from its first share of the users to the promotion": f"{minutes(summary, promoted):.1f}",
        "users' mean reward by production; by the version": f"{users['production']['reward']:.2f}; "
        f"{good['reward']:.2f}",
        "**rolled back**, after sessions of the version + of production": sessions(rolled_back),
        "at a share of": f"{share_before(summary, rolled_back):.0%}",
        "difference of reward, and its 95% interval (bad version)": interval(harm),
        "log e for *harm*, and needed": claim(harm["harm"]),
        "minutes from its first share of the users to the rollback": f"{minutes(summary, rolled_back):.1f}",
        "answers of the bad version, and their mean reward": f"{bad['answers']}, {bad['reward']:.2f}",
    }


def end_of(summary: Summary, action: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in summary["decisions"] if each["action"] == action)
    return found


def minutes(summary: Summary, end: dict[str, Any]) -> float:
    """Minutes of a rollout from the decision that began it."""
    begun = next(
        each for each in summary["decisions"] if each["action"] == "begin" and each["version"] == end["version"]
    )
    taken: float = (end["at"] - begun["at"]) / 60
    return taken


def share_before(summary: Summary, end: dict[str, Any]) -> float:
    shares = [each["share"] for each in summary["decisions"] if each["version"] == end["version"] and each is not end]
    return float(shares[-1])


def sessions(decision: dict[str, Any]) -> str:
    units = decision["evidence"]["units"]
    return f"{units['treatment']} + {units['control']}"


def interval(measured: dict[str, Any]) -> str:
    low, high = measured["interval"]
    return f"{measured['difference']:+.2f}, [{low:+.2f}, {high:+.2f}]"


def claim(found: dict[str, Any]) -> str:
    return f"{found['log_e']:.1f}, {found['needed']:.1f}"


if __name__ == "__main__":
    main()
