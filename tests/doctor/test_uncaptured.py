"""Calls that training never sees are named with their share and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from loops import RunLoop
from prometheus_client import CollectorRegistry
from serving import serving, until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from structlog.testing import capture_logs

from slipstream.capture.outcomes import WINDOW, Outcomes, OutcomeWindow
from slipstream.dialects.body import Reason
from slipstream.doctor.uncaptured import FIXES, UncapturedLog, findings
from slipstream.metrics import Metrics
from slipstream.proxy.metrics import SharedCounters

ROOT = Path(__file__).parents[2]


def found(outcomes: Outcomes) -> list[tuple[str, str, str]]:
    return [(finding.code, finding.where, finding.found) for finding in findings(outcomes)]


def test_a_route_is_named_with_its_calls_and_share() -> None:
    assert found(Outcomes(captured=12, routes={"completions": 36, "embeddings": 500})) == [
        (
            "live.route_not_captured",
            "/v1/completions",
            "36 calls to /v1/completions were not captured in the last 10 min, 75% of all",
        )
    ]


def test_a_reason_is_named_with_its_calls_share_and_fix() -> None:
    [finding] = findings(Outcomes(captured=90, reasons={"incomplete": 8, "status": 2}))
    assert (finding.code, finding.where) == ("live.calls_not_captured", "capture")
    assert finding.found == "8 of 100 calls were not captured in the last 10 min (8%); reason: incomplete"
    assert finding.fix == FIXES["incomplete"]


def test_a_reason_is_measured_by_the_calls_that_the_rate_takes() -> None:
    [finding] = findings(Outcomes(captured=15, reasons={"rate": 1980, "incomplete": 5}))
    assert finding.found == "5 of 20 calls were not captured in the last 10 min (25%); reason: incomplete"
    assert found(Outcomes(captured=1, reasons={"rate": 99}, routes={"completions": 4})) == [], "4 of 104"


@pytest.mark.parametrize(
    "outcomes",
    [
        Outcomes(),
        Outcomes(captured=95, reasons={"incomplete": 5}),
        Outcomes(captured=1, reasons={"incomplete": 2}),
        Outcomes(captured=1000, routes={"threads": 20}),
        Outcomes(reasons={"rate": 50, "opted_out": 50, "capture_queue_full": 50, "store_full": 50}),
        Outcomes(routes={"embeddings": 50, "audio": 50, "other": 50}),
    ],
    ids=["no calls", "a twentieth", "two", "few", "by wish", "no conversations"],
)
def test_what_is_no_problem(outcomes: Outcomes) -> None:
    assert found(outcomes) == []


def test_each_reason_has_something_to_do_about_it_which_the_docs_say() -> None:
    assert FIXES.keys() == {*get_args(Reason), "lease_lost"} - {"opted_out"}
    page = (ROOT / "docs" / "capture.md").read_text(encoding="utf-8")
    table = page.partition("| reason | why | what to do |")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    assert {reason.strip("`"): fix for reason, _, fix in rows if reason.strip("`") in FIXES} == FIXES


class Counted:
    """The counters of a sidecar, and its clock."""

    def __init__(self) -> None:
        self.metrics = Metrics(CollectorRegistry())
        self.counters = SharedCounters(2)
        self.proxy = self.counters.row(1)
        self.proxy.uncaptured("completions")  # before the training side was there
        self.now = 100.0
        self.window = OutcomeWindow(self.metrics, self.counters, lambda: self.now)


def test_the_window_holds_ten_minutes() -> None:
    sidecar = Counted()
    for _ in range(90):
        sidecar.now += 10
        sidecar.metrics.captured.inc(2)
        sidecar.metrics.not_captured.labels("status").inc()
        sidecar.proxy.uncaptured("threads")
        sidecar.window.look()
    sidecar.metrics.dropped.labels("lease_lost").inc(7)
    sidecar.proxy.dropped(1.0)
    for _ in range(5):
        sidecar.proxy.left_out()
    sidecar.metrics.not_captured.labels("rate").inc(2)
    assert sidecar.window.outcomes() == Outcomes(
        120, {"status": 60, "lease_lost": 7, "capture_queue_full": 1, "rate": 7}, {"threads": 60}
    )
    sidecar.now += WINDOW
    sidecar.window.look()
    sidecar.now += WINDOW
    sidecar.window.look()
    assert sidecar.window.outcomes() == Outcomes()


async def test_the_log_says_it_once_an_hour() -> None:
    sidecar = Counted()
    log = UncapturedLog(sidecar.window, lambda: sidecar.now, wanted=True)
    with capture_logs() as lines:
        for _ in range(500):
            sidecar.now += 10
            sidecar.proxy.uncaptured("completions")
            sidecar.metrics.captured.inc()
            await log.step()
    assert [line["event"] for line in lines] == ["calls_not_captured"] * 2
    assert lines[0]["log_level"] == "warning"
    assert lines[0]["found"] == "3 calls to /v1/completions were not captured in the last 10 min, 50% of all"
    assert "Use `chat.completions.create`" in lines[0]["fix"]
    with capture_logs() as lines:
        await UncapturedLog(sidecar.window, lambda: sidecar.now, wanted=False).step()
    assert lines == []


def production() -> Starlette:
    """Answers whatever is asked, with no chat completion."""

    async def reply(request: Request) -> JSONResponse:
        return JSONResponse({"id": "1", "path": request.url.path})

    return Starlette(routes=[Route("/v1/{path:path}", reply, methods=["POST"])])


@pytest.mark.slow
async def test_the_running_sidecar_tells_it(run_loop: RunLoop) -> None:
    async with serving(production()) as url, run_loop(production={"base_url": f"{url}/v1"}) as loop:
        for _ in range(4):
            assert (await loop.client.post("/v1/completions", json={"prompt": "hi"})).status_code == 200
        for _ in range(6):
            await loop.chat()

        async def told() -> dict[str, str] | None:
            problems = {each["code"]: each["found"] for each in (await loop.status())["problems"]}
            read = problems.get("live.calls_not_captured", "").startswith("6 ")  # calls are read some time later
            return problems if read else None

        assert await until(told) == {
            "live.route_not_captured": "4 calls to /v1/completions were not captured in the last 10 min, 40% of all",
            "live.calls_not_captured": "6 of 10 calls were not captured in the last 10 min (60%); reason: no_answer",
        }
        text = (await loop.client.get("/metrics")).text
        assert 'slipstream_proxy_uncaptured_total{route="completions"} 4.0' in text
        assert 'slipstream_problems{code="live.route_not_captured"} 1.0' in text
