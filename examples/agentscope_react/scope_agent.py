"""A shop's support agent: AgentScope's ReActAgent."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from agentscope.agent import ReActAgent
from agentscope.formatter import OpenAIChatFormatter
from agentscope.message import Msg, TextBlock
from agentscope.model import OpenAIChatModel
from agentscope.tool import Toolkit, ToolResponse

INSTRUCTIONS = "You work in a shop's support. Look orders up before you talk about them. Answer in one sentence."

client: dict[str, Any] = {}  # of the openai SDK: base_url, timeout and the like
# stream=False: AgentScope 1.0.21 cannot read the streams of openai 3.51
model = OpenAIChatModel("gpt-4.1-mini", stream=False, client_kwargs=client, generate_kwargs={"max_tokens": 100})


def find_order(order_id: str) -> ToolResponse:
    """Return the data of an order."""
    orders = {"17": "order 17: a lamp, 40 EUR, arrived broken", "18": "order 18: a chair, 95 EUR, on its way"}
    return said(orders.get(order_id, f"there is no order {order_id}"))


def refund(order_id: str, amount: float) -> ToolResponse:
    """Give money back for an order."""
    with Path("refunds.txt").open("a") as file:  # stands for the shop's bank
        file.write(f"{order_id} {amount}\n")
    return said(f"refunded {amount} EUR for order {order_id}")


def said(text: str) -> ToolResponse:
    return ToolResponse(content=[TextBlock(type="text", text=text)])


toolkit = Toolkit()
toolkit.register_tool_function(find_order)
toolkit.register_tool_function(refund)


async def support_agent(question: str) -> str:
    agent = ReActAgent("support", INSTRUCTIONS, model, OpenAIChatFormatter(), toolkit, max_iters=6)  # its memory is new
    agent.set_console_output_enabled(False)
    answer = await agent(Msg("user", question, "user"))
    return answer.get_text_content() or ""


if __name__ == "__main__":
    print(asyncio.run(support_agent(" ".join(sys.argv[1:]))))
