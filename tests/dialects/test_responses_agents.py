"""An agent of the OpenAI Agents SDK asks the policy the same, whichever of the two APIs it is set to."""

from __future__ import annotations

from typing import Any

import pytest
from responses_policy import Policy, calls

ANSWERS = [
    {"content": "Let me add.", "tool_calls": calls(("call_1", "add", '{"a":1,"b":2}'), ("call_2", "now", "{}"))},
    {"tool_calls": calls(("call_3", "add", '{"a":3,"b":4}'))},
    {"content": "It is 7."},
]


async def asked_by(api: str, **settings: Any) -> list[dict[str, Any]]:
    """The chat requests of an agent's run with two turns of tools, and of one more request in its session."""
    import agents

    @agents.function_tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @agents.function_tool
    def now() -> str:
        return "noon"

    model_class = {"responses": agents.OpenAIResponsesModel, "chat": agents.OpenAIChatCompletionsModel}[api.split()[0]]
    async with Policy([*ANSWERS, {"content": "Welcome."}]).served() as policy:
        agent = agents.Agent(
            "adder",
            instructions="Add what you are asked to.",
            model=model_class("gpt-4.1", openai_client=policy.client),
            model_settings=agents.ModelSettings(temperature=0.5, max_tokens=100, tool_choice="auto", **settings),
            tools=[add, now],
        )
        run = agents.RunConfig(tracing_disabled=True)
        if api == "responses streamed":
            streamed = agents.Runner.run_streamed(agent, "1 + 2 + 4?", run_config=run)
            async for _ in streamed.stream_events():
                pass
            assert streamed.final_output == "It is 7."
            thanks: list[Any] = [*streamed.to_input_list(), {"role": "user", "content": "Thanks."}]
            await agents.Runner.run(agent, thanks, run_config=run)
        elif api == "responses chained":
            chained = await agents.Runner.run(agent, "1 + 2 + 4?", run_config=run, auto_previous_response_id=True)
            name = chained.last_response_id
            await agents.Runner.run(agent, "Thanks.", run_config=run, previous_response_id=name)
        else:
            result = await agents.Runner.run(agent, "1 + 2 + 4?", run_config=run)
            thanks = [*result.to_input_list(), {"role": "user", "content": "Thanks."}]
            await agents.Runner.run(agent, thanks, run_config=run)
    return policy.asked


def read(request: dict[str, Any]) -> dict[str, Any]:
    """What a model reads of a request, and what its sampling is told; null says nothing."""
    messages = [
        {name: value for name, value in message.items() if value is not None or name == "content"}
        for message in request["messages"]
    ]
    told = ("temperature", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort")
    limit = request.get("max_completion_tokens") or request.get("max_tokens")
    return {
        "messages": messages,
        "tools": request["tools"],
        "limit": limit,
        **{name: request[name] for name in told if name in request},
    }


@pytest.mark.sampled(1)
@pytest.mark.parametrize("api", ["responses", "responses streamed", "responses chained"])
async def test_an_agent_asks_the_same_by_either_api(api: str) -> None:
    by_chat = [read(request) for request in await asked_by("chat")]
    by_responses = [read(request) for request in await asked_by(api)]
    assert len(by_chat) == len(by_responses) == 4
    assert by_responses == by_chat
