"""What the experiments leave: a file for each seed, a chart, and a part of docs/results.md made of them.

A script measures held-out tasks before and after training, keeps a `Seed` of it, and then writes its part of the page
from all seeds that are kept, so that each seed can be run for itself. Scripts are run as modules of the package:
`PYTHONPATH=benchmarks .venv/bin/python -m experiments.arithmetic --seed 1`.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # no display is needed
from matplotlib import pyplot as plt
from matplotlib.ticker import MaxNLocator

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results.md"
IMAGES = ROOT / "docs" / "images"
OUTPUT = ROOT / "experiments-output"
_COLORS = ("tab:blue", "tab:orange", "tab:green", "tab:red")


@dataclass(frozen=True)
class Measure:
    """One column of the results.

    Args:
        key: its name in the scores of a `Seed`.
        words: what it is, for the page and the chart.
        top: the chart's upper end, None for as high as it goes.
    """

    key: str
    words: str
    top: float | None = 1.0


@dataclass(frozen=True)
class Seed:
    """What one run of an experiment measured.

    Args:
        versions: scores on held-out tasks by policy version, first to last; a score by its `Measure.key`.
        seconds: wall time of all of it.
        counts: whatever else was counted (episodes, runs, calls), for the page.
    """

    seed: int
    versions: Mapping[int, Mapping[str, float]]
    seconds: float
    counts: Mapping[str, float]


def keep(experiment: str, result: Seed) -> None:
    path = OUTPUT / experiment / f"seed-{result.seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(result), indent=2) + "\n")


def kept(experiment: str) -> list[Seed]:
    """Every seed that was kept, in order."""
    found = [json.loads(path.read_text()) for path in (OUTPUT / experiment).glob("seed-*.json")]
    for each in found:
        each["versions"] = {int(version): scores for version, scores in each["versions"].items()}
    return sorted((Seed(**each) for each in found), key=lambda seed: seed.seed)


def before_and_after(seeds: Sequence[Seed], measures: Sequence[Measure]) -> list[str]:
    """A table: each measure of each seed's first and last version, and the mean of what changed."""
    rows = []
    for measure in measures:
        ends = [[scores[measure.key] for scores in seed.versions.values()] for seed in seeds]
        changes = [values[-1] - values[0] for values in ends]
        cells = [f"{values[0]:.2f} → {values[-1]:.2f}" for values in ends]
        rows.append(f"| {measure.words} | " + " | ".join(cells) + f" | {spread(changes, '+.2f')} |")
    return [*_head("on held-out tasks", seeds, "change, mean ± standard deviation"), *rows]


def by_version(seeds: Sequence[Seed], measure: Measure) -> list[str]:
    """A table: one measure of every version that was measured."""
    versions = sorted({version for seed in seeds for version in seed.versions})
    rows = []
    for version in versions:
        values = [seed.versions[version][measure.key] for seed in seeds if version in seed.versions]
        cells = [f"{seed.versions[version][measure.key]:.2f}" if version in seed.versions else "" for seed in seeds]
        rows.append(f"| {version} | " + " | ".join(cells) + f" | {spread(values, '.2f')} |")
    return [*_head(f"{measure.words} by version", seeds, "mean ± standard deviation"), *rows]


def spread(values: Sequence[float], form: str) -> str:
    if len(values) == 1:
        return f"{values[0]:{form}}"
    return f"{statistics.fmean(values):{form}} ± {statistics.stdev(values):{form.lstrip('+')}}"


def chart(name: str, seeds: Sequence[Seed], measures: Sequence[Measure], title: str) -> str:
    """Draws each measure by version, thin for each seed and thick for their mean; returns the page's line for it."""
    figure, axes = plt.subplots(1, len(measures), figsize=(3.4 * len(measures), 3.2), layout="constrained")
    for place, measure, color in zip(axes.flat if len(measures) > 1 else [axes], measures, _COLORS, strict=False):
        for seed in seeds:
            values = [scores[measure.key] for scores in seed.versions.values()]
            place.plot(list(seed.versions), values, "-", color=color, alpha=0.35)
        shared = [version for version in seeds[0].versions if all(version in seed.versions for seed in seeds)]
        means = [statistics.fmean(seed.versions[version][measure.key] for seed in seeds) for version in shared]
        place.plot(shared, means, "o-", color=color, linewidth=2.5)
        place.set(xlabel="version", title=measure.words)
        place.set_ylim(-0.02 if measure.top else 0, measure.top and 1.02 * measure.top)
        place.xaxis.set_major_locator(MaxNLocator(integer=True))
        place.grid(alpha=0.3)
    figure.suptitle(f"{title} (held-out tasks; {len(seeds)} seed{'s' * (len(seeds) > 1)})")
    IMAGES.mkdir(parents=True, exist_ok=True)
    figure.savefig(IMAGES / f"{name}.png", dpi=100)
    plt.close(figure)
    return f"![{title}](images/{name}.png)"


def write_part(name: str, lines: Iterable[str], page: Path = PAGE) -> None:
    """Replaces the experiment's marked part of the page, or puts it at the end; the other parts stay as they are."""
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->\n"
    text = page.read_text()
    if begin not in text:
        text += f"\n{begin}{end}"
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{page}: expected the line {end.strip()}")
    page.write_text(before + begin + "\n".join(lines) + "\n" + end + after)


def _head(first: str, seeds: Sequence[Seed], last: str) -> list[str]:
    columns = [first, *(f"seed {seed.seed}" for seed in seeds), last]
    return ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
