"""Cases of BFCL as questions to a model, and what its answers are worth."""

from __future__ import annotations

import pytest
from experiments.tool_cases import Case, case_of, split
from experiments.tool_use import choose, judge, row
from scripted import completion
from serving import serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from slipstream_client.tuner.model import TunerModel

# A line of bfcl-eval's BFCL_v4_multiple.json and its possible answer (Apache-2.0), shortened.
QUESTION = "What is the area of a triangle with a base of 10 units and a height of 5?"
FUNCTIONS = [
    {
        "name": "geometry.triangle_area",
        "description": "Calculate the area of a triangle. The formula is base times height by two.",
        "parameters": {
            "type": "dict",
            "properties": {
                "base": {"type": "integer", "description": "The base."},
                "height": {"type": "float", "description": "The height."},
                "unit": {"type": "string", "description": "The unit of measure."},
            },
            "required": ["base", "height"],
        },
    },
    {
        "name": "geometry.circle_area",
        "description": "Calculate the area of a circle.",
        "parameters": {"type": "dict", "properties": {"radius": {"type": "float"}}, "required": ["radius"]},
    },
]
RAW = {"id": "multiple_0", "question": [[{"role": "user", "content": QUESTION}]], "function": FUNCTIONS}
TRUTH = [{"geometry.triangle_area": {"base": [10], "height": [5], "unit": ["units", ""]}}]


def test_a_case_is_a_question_with_signatures_to_choose_from() -> None:
    assert case_of(RAW, TRUTH) == Case(
        question=QUESTION,
        functions=[
            "geometry_triangle_area(base, height, unit=None)  # Calculate the area of a triangle",
            "geometry_circle_area(radius)  # Calculate the area of a circle",
        ],
        function="geometry_triangle_area",
        expected={"base": [10], "height": [5], "unit": ["units", ""]},
    )


def test_no_function_that_is_held_out_is_trained_on() -> None:
    cases = [Case(f"question {number}", [], f"function_{number % 10}", {}) for number in range(40)]
    training, held_out = split(cases, 5)

    assert len(held_out) == 5
    assert training
    assert not {case.function for case in training} & {case.function for case in held_out}
    assert split(cases, 5) == (training, held_out)


@pytest.mark.parametrize(
    ("answer", "reward", "metrics"),
    [
        pytest.param("geometry_triangle_area(base=10, height=5.0)", 1.0, (1, 1, 1, 1), id="right"),
        pytest.param(" geometry_triangle_area(height=5, base=10) ", 1.0, (1, 1, 1, 1), id="in another order"),
        pytest.param("geometry_triangle_area(base=10, height=6)", 0.55, (1, 1, 0.5, 0), id="half of the arguments"),
        pytest.param("geometry_triangle_area()", 0.4, (1, 1, 0, 0), id="no arguments"),
        pytest.param("geometry_circle_area(base=10, height=5)", 0.1, (1, 0, 0, 0), id="another function"),
        pytest.param("geometry_triangle_area(10, 5)", 0.3, (0, 1, 0, 0), id="arguments without names"),
        pytest.param("geometry_triangle_area(base=ten, height=5)", 0.3, (0, 1, 0, 0), id="no literal value"),
        pytest.param("The area is 25.", 0.0, (0, 0, 0, 0), id="words"),
        pytest.param("", 0.0, (0, 0, 0, 0), id="nothing"),
    ],
)
async def test_what_an_answer_is_worth(answer: str, reward: float, metrics: tuple[float, ...]) -> None:
    requests = []

    async def chat(request: Request) -> JSONResponse:
        requests.append(await request.json())
        return JSONResponse(completion("m", answer))

    task = row(case_of(RAW, TRUTH))
    async with serving(Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])) as url:
        model = TunerModel(f"{url}/v1", "scripted", timeout=30)
        try:
            output = await choose(task, model)
        finally:
            await model.close()
    judged = judge(task, output.response)

    assert judged.reward == pytest.approx(reward)
    assert judged.metrics == dict(zip(("called", "tool", "arguments", "recall"), metrics, strict=True))
    asked = requests[0]["messages"][-1]["content"]
    assert QUESTION in asked
    assert all(signature in asked for signature in task["functions"])
