"""The table of docs/capture.md lists the clients of this folder, at the versions that are installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matrix.client import FOLDER, ROOT, clients
from matrix.report import REGION, markdown
from matrix.trial import Grouping, Outcome

PAGE = ROOT / "docs" / "capture.md"


def test_the_table_has_each_client_with_its_version_and_what_must_be_set() -> None:
    table = PAGE.read_text().partition(f"<!-- {REGION}: begin -->")[2].partition(f"<!-- {REGION}: end -->")[0]
    rows = [line.split(" | ")[:3] for line in table.splitlines() if line.startswith("| ")][1:]
    assert rows == [[f"| {client.title}", client.version, client.needs] for client in clients()]


def test_each_folder_has_an_agent_and_exact_versions() -> None:
    assert clients()
    for client in clients():
        folder = FOLDER / client.name
        assert (folder / ("agent.mjs" if client.in_node else "agent.py")).is_file(), client.name
        assert set(client.modes) <= {"whole", "stream"}
        if not client.in_node:
            lines = (folder / "requirements.txt").read_text().splitlines()
            assert [
                line for line in lines if line and not re.fullmatch(r"#.*|[\w.-]+(\[[\w,-]+\])?==[\w.!+]+", line)
            ] == []


def test_the_table_says_how_calls_group_and_which_streams_were_captured(tmp_path: Path) -> None:
    client = clients()[0]
    outcome = Outcome(
        client.name, "1.0", {"whole": Grouping(3, 1, 1), "stream": Grouping(3, 3, 2)}, {0: 20, 5: 3, 50: 0}
    )
    outcome.save(tmp_path / "outcome.json")
    row = markdown([(client, Outcome.read(tmp_path / "outcome.json"))]).splitlines()[-1]
    assert row.endswith("| whole: 1 task, 1 session; stream: 3 tasks, 2 sessions | 20, 3, 0 |")
    outcome.groupings["stream"], outcome.streams = Grouping(3, 1, 1), {}
    assert markdown([(client, outcome)]).splitlines()[-1].endswith("| 1 task, 1 session | not streamed |")


@pytest.mark.parametrize("needless", ["torch", "nvidia", "triton"])
def test_no_environment_has_what_trains_models(needless: str) -> None:
    for pins in FOLDER.glob("*/requirements.txt"):
        assert not re.search(rf"^{needless}", pins.read_text(), re.MULTILINE), pins
