"""From what tools print to the tables of the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench import counters, region, report
from bench.load import LoadFailed, parse
from bench.request import SLOT, chat
from bench.results import Results
from bench.rounds import Plan
from bench.targets import chosen
from bench.upstreams import answer

WRK = """Running 2s test @ http://127.0.0.1:8080/v1/chat/completions
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     0.95ms    1.10ms  12.00ms   90.00%
Requests/sec:  20000.00

{"requests": 40000, "microseconds": 2000000, "p50": 950, "p99": 3100, "refused": 1000, "failed": 2}
"""


def test_refused_answers_are_no_throughput() -> None:
    load = parse(WRK)
    assert (load.requests, load.answered, load.rate) == (40000, 39000, 19500)
    assert (load.p50, load.p99, load.failed) == (0.00095, 0.0031, 2)


def test_wrk_that_failed_is_quoted() -> None:
    with pytest.raises(LoadFailed, match="Connection refused"):
        parse("unable to connect to 127.0.0.1:8080 Connection refused\n")


def test_requests_and_answers_are_of_the_sizes_that_the_page_names() -> None:
    head, _, body = chat().partition(b"\r\n\r\n")
    assert len(body) == 2048
    assert b"content-length: 2048" in head
    assert chat().count(SLOT.encode()) == 1
    assert json.loads(body)["messages"][1]["role"] == "user"
    told = answer().replace("$request_id", "0" * 32)
    assert len(told) == 1024
    assert json.loads(told)["choices"][0]["finish_reason"] == "stop"


def test_what_is_compared_is_compared_within_a_round() -> None:
    results = Results()
    # the machine slows down from round to round; the proxy costs a tenth of a millisecond and half of the rate always
    for turn, (p50, rate) in enumerate([(0.001, 4000.0), (0.002, 3000.0), (0.009, 1000.0)]):
        results.add("direct", "p50", turn, p50)
        results.add("proxy", "p50", turn, p50 + 0.0001)
        results.add("direct", "rate", turn, rate)
        results.add("proxy", "rate", turn, rate / 2)
    results.add("proxy", "p50", 3, 5.0)  # without its other half
    assert results.added("proxy", "p50") == pytest.approx(0.0001)
    assert results.ratio("proxy", "rate", "direct") == pytest.approx(0.5)
    assert results.median("proxy", "rate") == 1500
    assert results.spread("proxy", "rate") == pytest.approx(0.5)
    assert results.added("peer", "p50") is results.median("peer", "p50") is None


def test_what_slipstream_says_becomes_the_share_that_was_stored() -> None:
    said = """# HELP slipstream_calls_captured_total Calls written to the store
slipstream_calls_captured_total 60.0
slipstream_calls_not_captured_total{reason="rate"} 900.0
slipstream_dropped_total{cause="capture_queue_full"} 30.0
slipstream_dropped_total{cause="runs_queue_full"} 7.0
slipstream_dropped_created{cause="capture_queue_full"} 1.7e+09
slipstream_capture_queue 10.0
"""
    now = counters.parse(said)
    assert now == counters.Counters(stored=60, dropped=30, left_out=900, waiting=10)
    assert now.share_stored(0.1) == pytest.approx(60 / 100)  # whoever drops may not know yet what was wanted
    assert now.since(counters.Counters(stored=10)).stored == 50
    assert counters.Counters(stored=97, left_out=903).share_stored(0.1) == 1
    assert counters.Counters(stored=40, dropped=60).share_stored(1.0) == 0.4
    assert counters.Counters(left_out=5).share_stored(0.0) is None


def test_the_report_has_a_row_for_each_target_and_names_what_is_missing(tmp_path: Path) -> None:
    results = Results(rounds=1, unavailable={"litellm": "not installed", "workers": "no workers here"})
    results.add("direct", "rate@32", 0, 50000.0)
    results.add("nginx", "rate@32", 0, 40000.0)
    results.add("nginx", "cpu@32", 0, 17.2e-6)
    results.add("slipstream-100", "rate@32", 0, 20000.0)
    results.add("slipstream-100", "cpu@32", 0, 50e-6)
    results.add("slipstream-100", "training@32", 0, 30e-6)
    results.add("slipstream-100", "stored@32", 0, 0.99999)
    results.note("nginx at 256: no good answer")
    plan = Plan(1, 1.0, 50, 100, 1000, 10, 15.0)
    text = report.report(results, chosen("nginx,slipstream-100,litellm"), plan, "--quick")
    requests = text.partition("### Requests")[2].strip().partition("\n\n")[0].splitlines()
    rows = {line.split(" | ")[0].strip("| "): line for line in requests}
    assert "| – / 40,000 / – |" in rows["nginx"]
    assert "| 17.2 |" in rows["nginx"]
    assert "LiteLLM proxy" not in rows
    assert "LiteLLM proxy was not measured: not installed" in text
    assert "nginx at 256: no good answer" in text
    assert "no workers here" in text
    assert "– / 99.9% / – / – / – | 20.0 | 30.0 |" in text  # one lost call in a hundred thousand is not 100%
    assert len({line.count("|") for line in requests}) == 1

    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench: begin -->\nold\n<!-- bench: end -->\nafter\n")
    region.write(page, "bench", text)
    region.write(page, "bench", text)
    whole = page.read_text()
    assert whole.startswith("before\n")
    assert whole.endswith("\nafter\n")
    assert whole.count(text) == 1
    assert "old" not in whole


def test_the_page_of_the_docs_has_the_region() -> None:
    assert region.unwritable(Path(__file__).parents[2] / "docs" / "benchmarks.md", "bench") is None
