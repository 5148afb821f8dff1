"""Frameworks whose agents end with the error of a tool: a blocked write ends none of their runs."""

from __future__ import annotations

from typing import Any

import pytest
from agentscope.message import ToolUseBlock
from agentscope.tool import Toolkit, ToolResponse
from loops import RunLoop
from mcp.types import TextContent
from serving import serving
from shop import ShopExplorer, shop_production

import slipstream_client as slipstream


async def test_agentscope_and_mcp_get_results_of_their_own_kinds() -> None:
    @slipstream.tool(side_effects=True)
    def refund(order_id: str) -> ToolResponse:
        raise AssertionError("paid back")

    @slipstream.tool(side_effects=True)
    def cancel(order_id: str) -> list[TextContent]:
        raise AssertionError("cancelled")

    toolkit = Toolkit()
    toolkit.register_tool_function(refund)
    with slipstream.replay("order-17", 0):
        chunks = await toolkit.call_tool_function(
            ToolUseBlock(type="tool_use", id="1", name="refund", input={"order_id": "17"})
        )
        [chunk] = [chunk async for chunk in chunks]
        [part] = cancel("17")
    assert chunk.content[0]["text"].startswith("This action was not carried out: refund")  # type: ignore[typeddict-item]
    assert (part.type, part.text[:31]) == ("text", "This action was not carried out")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("blocked", "failed", "rewards"), [("result", {}, [0.0, 1.0]), ("raise", {"agent_raised": 1}, [])]
)
async def test_an_agent_that_does_not_handle_errors_of_tools(
    blocked: Any, failed: dict[str, int], rewards: list[float], run_loop: RunLoop
) -> None:
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled

    set_tracing_disabled(True)
    refunded: list[float] = []

    @function_tool(failure_error_function=None)
    def find_order(order_id: str) -> str:
        return f"order {order_id}: a lamp, 40 EUR, arrived broken"

    @function_tool(failure_error_function=None)
    @slipstream.tool(side_effects=True)
    def refund(order_id: str, amount: float) -> str:
        refunded.append(amount)
        return f"refunded {amount:.0f} EUR for order {order_id}"

    explorer = ShopExplorer()
    async with (
        serving(shop_production([])) as production_url,
        run_loop(
            explorer, production={"base_url": f"{production_url}/v1"}, selection={"sampling": {"rate": 0}}
        ) as loop,
    ):
        slipstream.configure(loop.url, blocked_tools=blocked)
        model = OpenAIChatCompletionsModel("gpt-4.1-mini", slipstream.async_openai())
        support = Agent(name="support", tools=[find_order, refund], model=model)
        runner = slipstream.TrainingRunner(
            slipstream.SamplingRate(1), lambda run: 0.0 if run.blocked else 1.0, repeat_time=2
        )

        @runner.agent
        async def agent(question: str) -> str:
            return str((await Runner.run(support, question, max_turns=6)).final_output)

        async with runner:
            await agent("My lamp of order 17 arrived broken.")

    assert refunded == [40.0]
    assert runner.stats.failed == failed
    given = {(one["run_id"], one["reward"]) for one in explorer.trained}
    assert sorted(reward for _, reward in given) == rewards
    seen = [message["content"] for chat in explorer.chats for message in chat["messages"] if message["role"] == "tool"]
    told = any("This action was not carried out: refund" in content for content in seen)
    assert told == (blocked == "result")
