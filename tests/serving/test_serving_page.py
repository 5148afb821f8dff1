"""The page that both halves of a host have mapped: what is written holds at once, and what cannot be read is closed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from slipstream.serving.page import ServingPage, Split, close_page_of, page_in

SPLIT = Split(3, 8, 0.25, 2**63 + 5, "kept/8", "http://127.0.0.1:8020/v1")

WORKER = """
import sys
from pathlib import Path
from slipstream.serving.page import page_in
page = page_in(Path(sys.argv[1]))
for _ in sys.stdin:
    split = page.split()
    print("closed" if split is None else split.epoch, flush=True)
"""


def test_another_process_sees_each_change_from_its_next_look_on(tmp_path: Path) -> None:
    page = page_in(tmp_path)
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert worker.stdin is not None
    assert worker.stdout is not None

    def look() -> str:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
        return worker.stdout.readline().strip()

    assert look() == "closed"
    page.write(SPLIT)
    assert look() == "3"
    page.stop(noted=False)
    assert look() == "closed"
    page.release(unnoted=True)
    assert look() == "3"
    page.write(None)
    assert look() == "closed"
    worker.communicate()


def test_what_was_written_is_read_whole(tmp_path: Path) -> None:
    page, reader = page_in(tmp_path), page_in(tmp_path)
    assert reader.split() is None
    page.write(SPLIT)
    assert reader.split() == SPLIT
    assert (reader.split() or SPLIT).salt == 2**63 + 5
    assert page_in(tmp_path).split() == SPLIT, "it outlives who wrote it"


def test_a_page_that_is_being_written_is_closed_until_it_is_whole(tmp_path: Path) -> None:
    page, reader = page_in(tmp_path), page_in(tmp_path)
    page.write(SPLIT)
    with (tmp_path / "serving").open("r+b") as file:
        for cell, value in ((3, 3), (3, 4)):  # odd: amid a write; even: with a checksum of another content
            file.seek(8 * cell)
            file.write(value.to_bytes(8, "little"))
            file.flush()
            assert reader.split() is None
    writer = page_in(tmp_path)
    writer.write(SPLIT)
    assert reader.split() == SPLIT


def test_a_kill_that_the_store_does_not_know_is_not_taken_back_with_others(tmp_path: Path) -> None:
    page = page_in(tmp_path)
    page.write(SPLIT)
    page.stop(noted=True)
    assert not page.unnoted
    page.release(unnoted=False)
    assert page.split() == SPLIT
    page.stop(noted=False)
    assert page.unnoted
    page.release(unnoted=False)
    assert page.split() is None
    page.stop(noted=True)
    assert not page.unnoted
    page.stop(noted=False)
    assert not page.unnoted, "the store knows"


def test_the_page_of_another_release_is_closed_for_its_workers_and_replaced(tmp_path: Path) -> None:
    old = page_in(tmp_path)
    old.write(SPLIT)
    with (tmp_path / "serving").open("r+b") as file:
        file.seek(8)
        file.write((99).to_bytes(8, "little"))
    new = page_in(tmp_path)
    assert old.split() is None
    new.write(SPLIT)
    assert (new.split(), old.split()) == (SPLIT, None)


def test_a_file_that_is_no_page_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "serving").write_bytes(b"no page")
    page = page_in(tmp_path)
    page.write(SPLIT)
    assert isinstance(page, ServingPage)
    assert page.split() == SPLIT
    assert os.stat(tmp_path / "serving").st_mode & 0o077 == 0


def test_a_page_that_nobody_writes_any_more_is_closed(tmp_path: Path) -> None:
    close_page_of(tmp_path)
    assert list(tmp_path.iterdir()) == []
    page = page_in(tmp_path)
    page.write(SPLIT)
    close_page_of(tmp_path)
    assert page.split() is None
