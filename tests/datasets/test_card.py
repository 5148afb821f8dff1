"""The card of a data set, which names that agents chose cannot change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import yaml
from dataset_rows import FORMS, HOSTILE, dataset, provenance, rows
from markdown_it import MarkdownIt

from slipstream.datasets.folder import new_folder
from slipstream.datasets.row import Kind

EVIL = (
    "# Title\n\n<script>alert(1)</script> [click](https://evil.example) ![x](https://evil.example/p.png) | cell |\n"
    "---\nlicense: mit\n``` </code> @someone www.evil.example &lt; **bold** \u202e" + HOSTILE
)


def card(directory: Path, kind: Kind, **how: str) -> str:
    with new_folder(directory, dataset(kind, **how), replace=True) as folder:
        for number, row in enumerate(rows(kind)):
            folder.add("train", replace(row, provenance=provenance(number, models=(EVIL,), labels=(EVIL,))))
        folder.drop("equal", 7)
        folder.publish({"redaction": {"patterns": [EVIL]}})
    return (directory / "support" / "README.md").read_text(encoding="utf-8")


def test_hostile_names_are_text(tmp_path: Path) -> None:
    _, header, body = card(tmp_path, Kind.SFT).split("---\n", 2)
    said = yaml.safe_load(header)
    assert said["license"] == "unknown"
    assert said["configs"][0]["data_files"] == [{"split": "train", "path": "train.jsonl"}]
    parser = MarkdownIt("gfm-like", {"linkify": False}).enable("table")
    tokens = [inner for token in parser.parse(body) for inner in (token, *(token.children or ()))]
    kinds = {token.type for token in tokens}
    assert not kinds & {"html_block", "html_inline", "link_open", "image", "strong_open"}
    headings = [tokens[place + 1].content for place, token in enumerate(tokens) if token.type == "heading_open"]
    ours = "support, Rows, Sources, Rewards and lengths, Dropped, How it was made, Provenance, How to read it"
    assert ", ".join(headings) == ours
    shown = "".join(token.content for token in tokens if token.type in ("text", "text_special"))
    assert "<script>alert(1)</script>" in shown
    assert "\u202e" not in body
    assert "| equal | 7 |" in body
    assert "Licence: not stated." in body


def test_names_that_cannot_be_written_are_shown_as_far_as_they_can(tmp_path: Path) -> None:
    with new_folder(tmp_path, dataset()) as folder:
        for number in range(300):
            origin = provenance(number, models=(f"\ud83e{number}" + "x" * 10_000,))
            folder.add("train", replace(rows(Kind.SFT)[0], provenance=origin))
        made = folder.publish({})
    assert made.counts.models["(others)"] == 100
    assert max(map(len, made.counts.models)) == 200


def test_the_card_says_how_each_format_is_read(tmp_path: Path) -> None:
    owners = {"trl": "TRL", "openai": "OpenAI", "trinity": "Trinity-RFT", "sharegpt": "LLaMA-Factory"}
    for form, kind in FORMS:
        text = card(tmp_path, kind, format=form)
        assert 'load_dataset("support", split="train")' in text
        assert owners[form] in text.partition("## How to read it")[2]
