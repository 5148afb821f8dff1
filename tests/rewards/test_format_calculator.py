from typing import Any

import pytest
from reward_runs import WEATHER, completion, replay, shadow, tool_call, value

JSON = {"response_format": {"type": "json_object"}}
POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
SCHEMA = {"response_format": {"type": "json_schema", "json_schema": {"name": "point", "schema": POINT}}}


@pytest.mark.parametrize(
    ("answer", "request_fields", "expected"),
    [
        (completion("words"), {}, 1),
        (completion("  "), {}, 0),
        (completion(None), {}, 0),
        (completion("words that end", finish="length"), {}, 0),
        (completion(None, tool_call("weather", {"city": "Paris"})), {}, 1),
        (completion(None, tool_call("weather", {"town": "Paris"})), {}, 0),
        (completion("<tool_call>weather</tool_call>"), {}, 0),
        (completion('{"a": 1}'), JSON, 1),
        (completion("[1]"), JSON, 0),
        (completion("a: 1"), JSON, 0),
        (completion('{"x": 1}'), SCHEMA, 1),
        (completion('{"x": "1"}'), SCHEMA, 0),
        (completion(None, tool_call("weather", {"city": "Paris"})), SCHEMA, 1),
        (completion("words"), {"response_format": {"type": "text"}}, 1),
    ],
)
async def test_well_formed_or_not(answer: Any, request_fields: dict[str, Any], expected: float) -> None:
    assert await value(shadow(answer, tools=[WEATHER], request=request_fields), "format") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"name": "weather", "arguments": {}}', 0),
        ('[{"name": "weather", "arguments": {}}]', 0),
        ('{"tool_calls": [{"function": {"name": "weather"}}]}', 0),
        ('{"function_call": {"name": "weather"}}', 0),
        ('{"function": "weather"}', 0),
        ('{"tool": "weather", "args": {}}', 0),
        ('```JSON\n{"name": "weather"}\n```', 0),
        ('```json {"name": "weather"}```', 0),
        ('```tool_call\n  {"name": "weather"}', 0),
        ('Sure!\n```json\n{"name": "weather", "arguments": {}}\n```\nDone.', 0),
        ('I look.\n{"name": "weather", "arguments": {}}', 0),
        ('[1] and then\n{"name": "weather"}', 0),
        ('{"name": "Paris"}', 1),
        ('{"cities": [\n{"name": "weather"}\n]}', 1),
        ("[weather]\n{weather}", 1),
        ("{\n" * 5000, 1),
        ("[" * 5000, 1),
        ("[\n" * 5000, 1),
        ("It is warm.", 1),
    ],
)
async def test_a_call_that_was_left_in_the_text_as_json_is_a_fault(text: str, expected: float) -> None:
    assert await value(shadow(text, tools=[WEATHER]), "format") == expected


async def test_the_marks_of_a_tool_call_are_text_where_no_tools_are_offered() -> None:
    assert await value(shadow("Write <tool_call> to call a tool."), "format") == 1


async def test_a_run_of_several_answers_gets_the_share_that_is_well_formed() -> None:
    run = replay([completion(None, tool_call("weather")), completion("ok")], [completion("ok")])
    assert await value(run, "format") == 0.5


async def test_nan_is_no_json() -> None:
    assert await value(shadow('{"a": NaN}', request={"response_format": {"type": "json_object"}}), "format") == 0
