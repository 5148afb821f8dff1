"""Counters that processes share: a row for each of them, over deaths, releases and starts of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from slipstream.cluster.registration import Registration
from slipstream.serve import shared
from slipstream.serve.registered import registration_in
from slipstream.serve.shared import Shared, shared_in, shared_in_memory

WORKER = """
import sys
from pathlib import Path
from slipstream.serve.shared import shared_in
metrics, book = shared_in(Path(sys.argv[1]), 1).take_row()
metrics.begins()
metrics.answered(200)
book.counts("agents", "admitted")
print("there", flush=True)
sys.stdin.read()
"""


def worker(folder: Path) -> subprocess.Popen[str]:
    """A process that has a row, with one exchange under way and another one answered."""
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    return process


def value(counters: Shared, name: str, **labels: str) -> float:
    samples = [sample for metric in counters.counters.collect() for sample in metric.samples]
    return sum(one.value for one in samples if one.name == name and one.labels == labels)


@pytest.mark.slow
def test_workers_that_live_at_once_have_a_row_each_and_those_of_the_dead_are_taken(tmp_path: Path) -> None:
    seen = shared_in(tmp_path, 1)
    first, second = worker(tmp_path), worker(tmp_path)
    assert value(seen, "slipstream_proxy_in_flight") == 2
    assert seen.has_workers()
    first.communicate()
    second.kill()
    second.communicate()
    assert not seen.has_workers()
    third = worker(tmp_path)
    assert value(seen, "slipstream_proxy_in_flight") == 1, "nothing of the dead is under way"
    assert value(seen, "slipstream_proxy_requests_total", status="2xx") == 3
    assert seen.ledger.use()["agents"].requests["admitted"] == 3
    assert seen.ledger.workers == 2
    third.communicate()


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda file: file.write_bytes(b"no counters"), id="another file"),
        pytest.param(lambda file: os.truncate(file, 5000), id="cut"),
        pytest.param(lambda file: _write(file, 8, b"\1\2\3\4"), id="of a release that counts other things"),
        pytest.param(lambda file: _write(file, 16, b"\1\2\3\4"), id="of an earlier start of the machine"),
    ],
)
def test_a_file_that_does_not_fit_is_replaced(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    first = shared_in(tmp_path, 1)
    first.counters.row(0).answered(200)
    assert value(shared_in(tmp_path, 1), "slipstream_proxy_requests_total", status="2xx") == 1
    spoil(tmp_path / "counters")
    assert value(shared_in(tmp_path, 1), "slipstream_proxy_requests_total", status="2xx") == 0


def _write(file: Path, offset: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(offset)
        opened.write(data)


def test_more_workers_than_the_file_has_rows_for_get_another_one(tmp_path: Path) -> None:
    small = shared_in(tmp_path, 1)
    large = shared_in(tmp_path, 100)
    assert os.fstat(large.file).st_size > os.fstat(small.file).st_size


def test_a_successor_goes_on_with_counters_that_fit() -> None:
    first = shared_in_memory(1)
    first.counters.row(0).answered(200)
    assert value(shared_in_memory(2, first.file), "slipstream_proxy_requests_total", status="2xx") == 1
    assert value(shared_in_memory(100, first.file), "slipstream_proxy_requests_total", status="2xx") == 0


def test_without_a_free_row_a_worker_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_lock", lambda file, row: False)
    with pytest.raises(RuntimeError, match="all 16 rows"):
        shared_in_memory(1).take_row()


def test_a_registration_counts_for_its_own_store(tmp_path: Path) -> None:
    registration_in(tmp_path, "postgresql://one").note(7)
    assert registration_in(tmp_path, "postgresql://one").read() == 7
    assert registration_in(tmp_path, "postgresql://two").read() == 0
    assert Registration().read() == 0
