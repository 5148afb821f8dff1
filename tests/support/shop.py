"""The shop of `examples/`: models that play its support's part, and its agents run as programs of their own."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from pathlib import Path
from typing import Any

from scripted import ScriptedExplorer, completion, tool_call
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from slipstream.dialects.form import Dialect
from slipstream.dialects.translators import TRANSLATORS

EXAMPLES = {"react": "react_openai", "sdk": "openai_agents", "scope": "agentscope_react"}
"""The folder of each example, by what the names of its files begin with."""

QUESTION = "My lamp of order 17 arrived broken, I want my money back."
ANSWER = "The lamp of order 17 is refunded: 40 EUR are on their way."


def next_step(answer_id: str, results: list[str], amount: float = 40) -> dict[str, Any]:
    """What a good model says next: it looks the order up, pays back so much, and answers.

    Args:
        results: of tools so far.
    """
    if not results:
        return completion(answer_id, "", [tool_call("find_order", {"order_id": "17"}, f"call_{answer_id}")])
    if len(results) == 1 and "arrived broken" in results[0]:
        return completion(
            answer_id, "", [tool_call("refund", {"order_id": "17", "amount": amount}, f"call_{answer_id}")]
        )
    return completion(answer_id, ANSWER if "refunded 40" in results[-1] else f"That went wrong: {results[-1]}")


def shop_production(bodies: list[dict[str, Any]]) -> Starlette:
    """Chat completions and responses, not streamed.

    Args:
        bodies: takes the requests.
    """

    async def chat(request: Request) -> Response:
        bodies.append(await request.json())
        return JSONResponse(next_step(f"prod-{len(bodies)}", _results(bodies[-1])))

    async def respond(request: Request) -> Response:
        body = await request.json()
        bodies.append(body)
        results = [str(item["output"]) for item in body["input"] if item.get("type") == "function_call_output"]
        answer = next_step(f"prod-{len(bodies)}", results)
        return JSONResponse(TRANSLATORS[Dialect.RESPONSES].answer(answer, body))

    routes = {"/v1/chat/completions": chat, "/v1/responses": respond}
    return Starlette(routes=[Route(path, endpoint, methods=["POST"]) for path, endpoint in routes.items()])


def _results(chat: dict[str, Any]) -> list[str]:
    return [str(message["content"]) for message in chat["messages"] if message["role"] == "tool"]


class ShopExplorer(ScriptedExplorer):
    """A policy that pays back the right amount in every other run, and else one that production did not pay."""

    def __init__(self) -> None:
        super().__init__()
        self._amounts = itertools.cycle([40, 55])

    def reply(self, msg_id: str, body: dict[str, Any]) -> dict[str, Any]:
        results = _results(body)
        return next_step(msg_id, results, next(self._amounts) if len(results) == 1 else 40)


async def run_program(name: str, part: str, folder: Path, **environment: str) -> str:
    """What a file of an example prints, asked about the broken lamp."""
    program = Path(__file__).parents[2] / "examples" / EXAMPLES[name] / f"{name}_{part}.py"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(program), QUESTION),
        cwd=folder,
        env={**os.environ, "OPENAI_API_KEY": "sk-agent", **environment},
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(120):
        printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode()


def refunds(folder: Path) -> list[tuple[str, float]]:
    """What the shop has paid back, by order."""
    lines = (folder / "refunds.txt").read_text().splitlines()
    return [(order, float(amount)) for order, amount in (line.split() for line in lines)]
