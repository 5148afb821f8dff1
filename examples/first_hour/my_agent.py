"""An agent that books invoices: it reads one, and calls the tool `book_invoice`.

An ordinary program on the openai SDK. Slipstream asks for one change in it, the `base_url`; the header says what the
right booking would have been, for the reward function.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from openai import AsyncOpenAI

MODEL = "models/smollm2"
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "book_invoice",
        "parameters": {
            "type": "object",
            "properties": {"vendor": {"type": "string"}, "total": {"type": "number"}},
            "required": ["vendor", "total"],
        },
    },
}
# One example, as text: a model of 135 million parameters makes no tool call that it has not just seen.
EXAMPLE: list[Any] = [
    {"role": "user", "content": "Invoice 1204 from Bright Bakery Ltd\nbread: 80.00\nVAT: 15.20\nTotal: 95.20"},
    {
        "role": "assistant",
        "content": '<tool_call>\n{"name": "book_invoice", '
        '"arguments": {"vendor": "Bright Bakery Ltd", "total": 95.20}}\n</tool_call>',
    },
]


async def book(
    client: AsyncOpenAI, invoice: str, *, model: str = MODEL, reference: Mapping[str, Any] | None = None
) -> Sequence[Mapping[str, Any]]:
    """The model's tool calls for an invoice.

    Args:
        reference: the right booking, where it is known.
    """
    metadata = {"x-slipstream-metadata": json.dumps({"reference": reference})} if reference else {}
    completion = await client.chat.completions.create(
        model=model,
        messages=[*EXAMPLE, {"role": "user", "content": invoice}],
        tools=[TOOL],
        max_tokens=64,
        extra_headers=metadata,
    )
    return [call.model_dump() for call in completion.choices[0].message.tool_calls or []]


def invoices(seed: int, count: int) -> list[tuple[str, dict[str, Any]]]:
    """Made-up invoices, each with its right booking."""
    rng = random.Random(seed)
    return [_invoice(rng) for _ in range(count)]


def _invoice(rng: random.Random) -> tuple[str, dict[str, Any]]:
    vendor = " ".join(map(rng.choice, (_NAMES, _TRADES, _FORMS)))
    net = rng.randint(2_000, 90_000)  # cents
    tax = net * 19 // 100
    number, item = rng.randint(1_000, 9_999), rng.choice(_ITEMS)
    total = (net + tax) / 100
    layouts = (
        f"Invoice {number} from {vendor}\n{item}: {net / 100:.2f}\nVAT: {tax / 100:.2f}\nTotal: {total:.2f}",
        f"{vendor}\nInvoice no. {number}\n{item} {net / 100:.2f}\n19% VAT {tax / 100:.2f}\nAmount due {total:.2f}",
    )
    return rng.choice(layouts), {"vendor": vendor, "total": total}


_NAMES = ("Amber", "Cedar", "Copper", "Delta", "Falcon", "Granite", "Harbor", "Maple", "Nordwind", "Orchid", "Willow")
_TRADES = ("Energy", "Foods", "Garden", "Logistics", "Office", "Paper", "Print", "Textiles", "Tools", "Travel")
_FORMS = ("GmbH", "Inc", "Ltd", "SA")
_ITEMS = ("cables", "catering", "chairs", "cleaning", "coffee", "lamps", "printer paper", "repairs", "toner")
