"""A shop's support agent, on the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from agents import (
    Agent,
    MaxTurnsExceeded,
    ModelBehaviorError,
    ModelSettings,
    Runner,
    function_tool,
    set_default_openai_client,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

set_tracing_disabled(True)  # or the SDK sends every run, replays too, to OpenAI
set_default_openai_client(AsyncOpenAI())


@function_tool
def find_order(order_id: str) -> str:
    """Return the data of an order."""
    orders = {"17": "order 17: a lamp, 40 EUR, arrived broken", "18": "order 18: a chair, 95 EUR, on its way"}
    return orders.get(order_id, f"there is no order {order_id}")


@function_tool
def refund(order_id: str, amount: float) -> str:
    """Give money back for an order."""
    with Path("refunds.txt").open("a") as file:  # stands for the shop's bank
        file.write(f"{order_id} {amount}\n")
    return f"refunded {amount} EUR for order {order_id}"


support = Agent(
    name="support",
    instructions="You work in a shop's support. Look orders up before you talk about them. Answer in one sentence.",
    tools=[find_order, refund],
    model_settings=ModelSettings(max_tokens=100),
    model="gpt-4.1-mini",
)


async def support_agent(question: str) -> str:
    try:
        result = await Runner.run(support, question, max_turns=6)
    except (MaxTurnsExceeded, ModelBehaviorError):  # the latter also if an answer was cut at max_tokens
        return "I am sorry, I could not finish this."
    return str(result.final_output)


if __name__ == "__main__":
    print(asyncio.run(support_agent(" ".join(sys.argv[1:]))))
