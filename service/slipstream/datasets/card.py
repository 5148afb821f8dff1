"""`README.md` of a data set: its card, with the header by which Hugging Face's `datasets` reads the folder.

Names that agents chose (models, labels) may hold anything; in the card they are text and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from slipstream.datasets.formats import columns
from slipstream.datasets.manifest import Manifest, Spread
from slipstream.datasets.reading import how_to_read

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
"""CommonMark takes a backslash before each of these as the character itself: no markup, tag, link or mention."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Ends of lines, and what changes the direction of a text."""
_NAME = 80
"""Characters of a name that are shown."""

_TEACHES = {
    "sft": "Each row teaches its answer.",
    "preference": "Each row prefers the chosen answer to the rejected one.",
    "kto": "Each row says whether its answer is good.",
    "correction": "Each row has an answer and what its user said was wrong with it.",
}


def text(made: Manifest) -> str:
    """Return the card of a data set."""
    return f"---\n{_yaml(_header(made))}---\n\n{''.join(_body(made))}"


def inert(name: str) -> str:
    """Return a name as Markdown that shows it and does nothing else."""
    shown = _CONTROL.sub("\ufffd", name)
    return _PUNCTUATION.sub(r"\\\1", shown if len(shown) <= _NAME else f"{shown[: _NAME - 1]}…")


def _header(made: Manifest) -> dict[str, Any]:
    rows = {split: count for split, count in made.counts.rows.items() if count}
    files = [{"split": split, "path": f"{split}.{made.files}"} for split in rows]
    features = [column.in_card(name) for name, column in columns(made.format, made.kind).items()]
    total = sum(rows.values())
    header: dict[str, Any] = {
        "pretty_name": made.name,
        "license": "unknown",
        "size_categories": [next((name for limit, name in _SIZES if total < limit), "n>1T")],
        "tags": ["slipstream", made.kind.value, made.format],
    }
    if files:
        header["configs"] = [{"config_name": "default", "data_files": files}]
        header["dataset_info"] = {"config_name": "default", "features": features}
    return header


_SIZES = [(10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M")]


def _body(made: Manifest) -> Iterator[str]:
    counts = made.counts
    yield f"# {inert(made.name)}\n\n"
    yield f"Made by Slipstream on {made.made_at:%Y-%m-%d %H:%M} UTC: kind `{made.kind}`, format `{made.format}`. "
    yield f"{_TEACHES[made.kind]}\n\nLicence: not stated.\n\n"
    yield _table("Split", "Rows", counts.rows, "## Rows")
    yield _held_out(made)
    yield _table("Source", "Rows", counts.sources, "## Sources")
    yield _table("Model or version", "Answers", counts.models)
    yield _table("Label", "Rows", counts.labels)
    yield _spreads(made)
    yield "## Dropped\n\n" + (_table("Reason", "Rows", made.dropped) if made.dropped else "Nothing was dropped.\n\n")
    if made.erased:
        yield "## Erased\n\nRows that were removed after the data set was made:\n\n| When | Rows |\n|---|---|\n"
        yield "".join(
            f"| {erasure.at:%Y-%m-%d %H:%M} UTC | {sum(erasure.rows.values())} |\n" for erasure in made.erased
        )
        yield "\n"
    yield "## How it was made\n\nThe messages are as the sidecar stored them, redacted by its rules.\n\n"
    yield _as_code(made.model_dump(mode="json", include={"dataset", "about"}))
    yield "## Provenance\n\n`SPLIT.provenance.jsonl` has a line for each row: line n describes row n. "
    yield f"The digest of the files is `{made.digest}`.\n\n"
    yield f"## How to read it\n\n{how_to_read(made)}"


def _held_out(made: Manifest) -> str:
    rule = made.dataset.get("held_out", {})
    share = f"a share of {rule['share']} of the sessions" if "share" in rule else "the sidecar's share of the sessions"
    return f"Held out is {share}, whole sessions, which are drawn by their names.\n\n"


def _spreads(made: Manifest) -> str:
    spreads: Mapping[str, Spread | None] = {
        "Reward": made.counts.rewards,
        "Reward of the rejected answer": made.counts.rejected_rewards,
        "Characters": made.counts.characters,
        "Messages": made.counts.messages,
        "Tools": made.counts.tools,
    }
    rows = [_spread(name, spread) for name, spread in spreads.items() if spread is not None]
    if not rows:
        return ""
    head = (
        "| | Values | Mean | Least | 5% | 25% | 50% | 75% | 95% | Most |\n|---|---|---|---|---|---|---|---|---|---|\n"
    )
    return f"## Rewards and lengths\n\n{head}{''.join(rows)}\n"


def _spread(name: str, spread: Spread) -> str:
    values = (spread.mean, spread.least, *spread.quantiles, spread.most)
    return f"| {name} | {spread.count} | {' | '.join(f'{value:.4g}' for value in values)} |\n"


def _table(name: str, value: str, counts: Mapping[str, int], heading: str = "") -> str:
    if not counts:
        return ""
    rows = "".join(f"| {inert(key)} | {count} |\n" for key, count in counts.items())
    return f"{heading}{heading and chr(10) * 2}| {name} | {value} |\n|---|---|\n{rows}\n"


def _as_code(value: Mapping[str, Any]) -> str:
    """Indented, which no text in it can end, as it could a fence."""
    return "".join(f"    {line}\n" for line in _yaml(value).splitlines()) + "\n"


def _yaml(value: Mapping[str, Any]) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=False, width=100)
