"""A ReAct agent of a shop's support, on the openai SDK alone: think, call a tool, look, until there is an answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import slipstream_client as slipstream

INSTRUCTIONS = "You work in a shop's support. Look orders up before you talk about them. Answer in one sentence."
MAX_STEPS = 6

client = slipstream.openai()


def find_order(order_id: str) -> str:
    orders = {"17": "order 17: a lamp, 40 EUR, arrived broken", "18": "order 18: a chair, 95 EUR, on its way"}
    return orders.get(order_id, f"there is no order {order_id}")


@slipstream.tool(side_effects=True)
def refund(order_id: str, amount: float) -> str:
    with Path("refunds.txt").open("a") as file:  # stands for the shop's bank
        file.write(f"{order_id} {amount}\n")
    return f"refunded {amount} EUR for order {order_id}"


TOOLS: dict[str, Callable[..., str]] = {"find_order": find_order, "refund": refund}


def described(name: str, what: str, **parameters: str) -> dict[str, Any]:
    """A tool as the model is told of it."""
    properties = {parameter: {"type": kind} for parameter, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": what, "parameters": schema}}


DESCRIPTIONS: list[Any] = [
    described("find_order", "What an order is about.", order_id="string"),
    described("refund", "Give money back for an order.", order_id="string", amount="number"),
]


def support_agent(question: str) -> str:
    messages: list[Any] = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": question}]
    for _ in range(MAX_STEPS):
        completion = client.chat.completions.create(
            model="gpt-4.1-mini", messages=messages, tools=DESCRIPTIONS, max_tokens=100
        )
        message = completion.choices[0].message
        if not message.tool_calls:
            return message.content or ""
        messages.append(message)
        for call in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": use_tool(call)})
    return "I could not find that out."


def use_tool(call: Any) -> str:
    try:
        return TOOLS[call.function.name](**json.loads(call.function.arguments))
    except Exception as error:  # noqa: BLE001 - whatever it is, the model is told, and may do better
        return f"that did not work: {error!r}"


if __name__ == "__main__":
    print(support_agent(" ".join(sys.argv[1:])))
