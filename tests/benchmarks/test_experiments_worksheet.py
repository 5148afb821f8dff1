"""The agent that does sums step by step, on a scripted model; and the page that is made of what it measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from experiments import report
from experiments.worksheet import MOST_TURNS, held_out_sums, judge, solve, training_sums
from scripted import completion
from serving import serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from slipstream_client.tuner import JudgeOutput
from slipstream_client.tuner.model import TunerModel

SUM = {"sum": "40 - 8 + 31", "answer": "63"}


async def judged(write: Callable[[str], str]) -> JudgeOutput:
    """What a run of the agent is worth whose model writes so, given what is left of the sum."""

    async def chat(request: Request) -> JSONResponse:
        return JSONResponse(completion("m", write((await request.json())["messages"][-1]["content"])))

    app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
    async with serving(app) as url:
        model = TunerModel(f"{url}/v1", "scripted", timeout=30)
        try:
            output = await solve(SUM, model)
        finally:
            await model.close()
    return judge(SUM, output.response)


def first_operation(left: str) -> str:
    return " ".join(left.split()[:3])


async def test_one_operation_after_the_other_is_worth_everything() -> None:
    output = await judged(first_operation)

    assert output.reward == pytest.approx(1.0)
    assert output.metrics == {"right": 1.0, "format": 1.0, "turns": 3.0}


@pytest.mark.parametrize(
    ("written", "reward", "metrics"),
    [
        pytest.param("63", 0.7, {"right": 1.0, "format": 1.0, "turns": 1.0}, id="a lucky guess"),
        pytest.param("64", 0.0, {"right": 0.0, "format": 1.0, "turns": 1.0}, id="a wrong guess"),
        pytest.param("8 + 31", 0.0, {"right": 0.0, "format": 1.0, "turns": MOST_TURNS}, id="not the next operation"),
        pytest.param("40 - 8 + 31", 0.0, {"right": 0.0, "format": 0.0, "turns": MOST_TURNS}, id="no operation"),
        pytest.param("40 - 8", 0.15, {"right": 0.0, "format": 1.0, "turns": MOST_TURNS}, id="half of the way"),
    ],
)
async def test_what_else_a_model_writes_is_worth(written: str, reward: float, metrics: dict[str, float]) -> None:
    output = await judged(lambda _: written)

    assert output.reward == pytest.approx(reward)
    assert output.metrics == metrics


async def test_a_turn_that_has_no_effect_costs_a_little() -> None:
    said: Iterator[Any] = iter(["Let us see.", first_operation, first_operation, first_operation])

    def write(left: str) -> str:
        each = next(said)
        return str(each(left) if callable(each) else each)

    output = await judged(write)

    assert output.reward == pytest.approx(0.5 + 0.3 + 0.2 * 3 / 4)
    assert output.metrics == {"right": 1.0, "format": 0.75, "turns": 4.0}


def test_no_training_sum_is_held_out() -> None:
    held_out = {row["sum"] for row in held_out_sums(64)}
    training = training_sums(1, 200)

    assert len(training) == 200
    assert not held_out & {row["sum"] for row in training}
    assert all(int(row["answer"]) == eval(row["sum"]) for row in training)


def test_a_page_keeps_its_other_parts(tmp_path: Path) -> None:
    page = tmp_path / "results.md"
    page.write_text("# Results\n\n<!-- begin other -->\nstays\n<!-- end other -->\n")
    seeds = [report.Seed(number, {0: {"right": 0.25}, 8: {"right": 0.75}}, 60.0, {}) for number in (1, 2)]

    for _ in range(2):
        report.write_part("sums", report.before_and_after(seeds, [report.Measure("right", "accuracy")]), page)

    text = page.read_text()
    assert text.startswith("# Results\n\n<!-- begin other -->\nstays\n<!-- end other -->\n")
    assert text.count("| accuracy | 0.25 → 0.75 | 0.25 → 0.75 | +0.50 ± 0.00 |") == 1
