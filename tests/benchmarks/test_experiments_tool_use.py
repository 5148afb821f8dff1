"""Cases of BFCL as requests, and what answers to them are worth."""

from __future__ import annotations

import json
from typing import Any

import pytest
from experiments.tool_cases import Case, case_of, split, with_others
from experiments.tool_scoring import share
from experiments.tool_use import choose, judge, row
from scripted import completion
from serving import serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from slipstream_client.tuner.model import TunerModel

# A line of bfcl-eval's BFCL_v4_simple_python.json and its possible answer (Apache-2.0), shortened.
RAW = {
    "id": "simple_python_0",
    "question": [[{"role": "user", "content": "Find the area of a triangle with a base of 10 units and height of 5."}]],
    "function": [
        {
            "name": "geometry.triangle_area",
            "description": "Calculate the area of a triangle.",
            "parameters": {
                "type": "dict",
                "properties": {
                    "base": {"type": "integer", "description": "The base."},
                    "height": {"type": "float", "description": "The height."},
                    "sides": {"type": "tuple", "items": {"type": "any"}},
                },
                "required": ["base", "height"],
            },
        }
    ],
}
TRUTH = [{"geometry.triangle_area": {"base": [10], "height": [5], "unit": ["units", ""]}}]
RIGHT = {"name": "geometry_triangle_area", "arguments": {"base": 10, "height": 5.0}}


def of(function: str) -> Case:
    """A case that is answered by a function of that name."""
    return case_of({**RAW, "function": [{**RAW["function"][0], "name": function}]}, [{function: {"base": [10]}}])


def test_a_case_is_an_openai_request_with_json_schema() -> None:
    case = case_of(RAW, TRUTH)

    (tool,) = case.tools
    assert tool["type"] == "function"
    assert tool["function"]["name"] == case.function == "geometry_triangle_area"
    assert tool["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "base": {"type": "integer", "description": "The base."},
            "height": {"type": "number", "description": "The height."},
            "sides": {"type": "array", "items": {}},
        },
        "required": ["base", "height"],
    }


def test_each_case_has_its_own_function_and_another_to_choose_from() -> None:
    mixed = with_others([of(name) for name in ("area", "area", "volume", "mass")])

    offered = [{tool["function"]["name"] for tool in case.tools} for case in mixed]
    assert all(case.function in names and len(names) == 2 for case, names in zip(mixed, offered, strict=True))
    assert mixed == with_others([of(name) for name in ("area", "area", "volume", "mass")])


def test_no_function_that_is_held_out_is_trained_on() -> None:
    training, held_out = split([of(f"function_{number % 10}") for number in range(40)], 5)

    assert len(held_out) == 5
    assert training
    assert not {case.function for case in training} & {case.function for case in held_out}


@pytest.mark.parametrize(
    ("expected", "arguments", "worth"),
    [
        pytest.param({"n": [5]}, {"n": 5}, 1, id="right"),
        pytest.param({"n": [5]}, {"n": 5.0}, 1, id="a number by its value"),
        pytest.param({"n": [1]}, {"n": True}, 0, id="a truth value is no number"),
        pytest.param({"n": [5]}, {"n": "5"}, 0, id="a text is no number"),
        pytest.param({"n": [5]}, {}, 0, id="missing"),
        pytest.param({"n": [5], "unit": ["cm", ""]}, {"n": 5}, 1, id="optional, and left out"),
        pytest.param({"n": [5], "unit": ["cm", ""]}, {"n": 5, "unit": "m"}, 0.5, id="optional, and wrong"),
        pytest.param({"n": [5]}, {"n": 5, "m": 6}, 0.5, id="one too many"),
        pytest.param({"day": ["2024-04-01", "April 1, 2024"]}, {"day": "april 1 2024"}, 1, id="texts as BFCL compares"),
        pytest.param({"who": ["Ann"]}, {"who": "Anna"}, 0, id="another text"),
        pytest.param({"of": [["a b", 2]]}, {"of": ["AB", 2]}, 1, id="a list, place by place"),
        pytest.param({"of": [[1, 2]]}, {"of": [2, 1]}, 0, id="a list in another order"),
        pytest.param({"at": [{"x": [1, 2], "y": [""]}]}, {"at": {"x": 2}}, 1, id="an object with possible values"),
        pytest.param({"at": [{"x": [1], "y": [3]}]}, {"at": {"x": 1}}, 0, id="an object with a value missing"),
        pytest.param({}, {}, 1, id="nothing to give"),
    ],
)
def test_arguments_are_compared_with_the_possible_answers(
    expected: dict[str, Any], arguments: dict[str, Any], worth: float
) -> None:
    assert share(arguments, expected) == worth


def called(*calls: dict[str, Any]) -> dict[str, Any]:
    """A message with tool calls."""
    functions = [{"name": call["name"], "arguments": json.dumps(call["arguments"])} for call in calls]
    calls_made = [{"id": f"call_{n}", "type": "function", "function": each} for n, each in enumerate(functions)]
    return {"role": "assistant", "content": None, "tool_calls": calls_made}


@pytest.mark.parametrize(
    ("message", "reward", "metrics"),
    [
        pytest.param(called(RIGHT), 1.0, (1, 1, 1, 1), id="right"),
        pytest.param(
            called({**RIGHT, "arguments": {"base": 10, "height": 6}}), 0.55, (1, 1, 0.5, 0), id="half of the arguments"
        ),
        pytest.param(called({**RIGHT, "name": "restaurant_book"}), 0.1, (1, 0, 0, 0), id="another function"),
        pytest.param(called(RIGHT, {**RIGHT, "name": "other"}), 0.7, (1, 0, 1, 1), id="another one beside"),
        pytest.param({"role": "assistant", "content": "It is 25."}, 0.0, (0, 0, 0, 0), id="no call"),
    ],
)
async def test_what_an_answer_is_worth(message: dict[str, Any], reward: float, metrics: tuple[float, ...]) -> None:
    requests = []

    async def chat(request: Request) -> JSONResponse:
        requests.append(await request.json())
        answer = completion("m", "")
        answer["choices"][0]["message"] = message
        return JSONResponse(answer)

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
    assert requests[0]["messages"][-1]["content"] == RAW["question"][0][0]["content"]
    assert "geometry_triangle_area" in [tool["function"]["name"] for tool in requests[0]["tools"]]
