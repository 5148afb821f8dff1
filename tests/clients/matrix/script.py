"""The script of the production model: it calls a tool twice at once, calls it again, then answers in words.

A question that asks for a greeting gets a text at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from matrix.said import Said

WEATHER = "How warm is it in Paris, in Rome and in Oslo?"
ANSWER = "Sunny in all three."
GREETING = re.compile(r"Say hello (\d+), (\d+) ms late")


def greeting(number: int, late: int) -> str:
    """A question whose answer's stream ends `late` milliseconds after its last event."""
    return f"Say hello {number}, {late} ms late."


@dataclass(frozen=True)
class Reply:
    """An answer in no dialect.

    Attributes:
        text: "" for none.
        calls: of tools, by name and arguments.
    """

    text: str = ""
    calls: Sequence[tuple[str, dict[str, Any]]] = field(default_factory=tuple)


def reply(said: Sequence[Said], tools: Sequence[str], *, parallel: bool) -> Reply:
    """The answer to a conversation.

    Args:
        tools: the names of those that the agent offers.
        parallel: whether it allows two calls at once.
    """
    spoken = "\n".join(one.text for one in said)
    if not tools and "[[ ## " in spoken:
        return Reply(_for_dspy(said[-1].text, greeted=GREETING.search(spoken) is not None))
    if (tool := tool_of(tools)) is not None and not GREETING.search(spoken):
        if tool == "ToolSearch":
            return Reply("", [(tool, {"query": "select:mcp__forecast__weather", "max_results": 1})])
        if "sunny in Paris" not in spoken:
            cities = ("Paris", "Rome") if parallel else ("Paris",)
            return Reply("", [(tool, _arguments(tool, city)) for city in cities])
        if "sunny in Oslo" not in spoken:
            return Reply("Now the last one. ", [(tool, _arguments(tool, "Oslo"))])
    if "final_answer" in tools:
        return Reply("", [("final_answer", {"answer": ANSWER})])
    return Reply(ANSWER)


def tool_of(tools: Sequence[str]) -> str | None:
    """The tool that is to be called: the weather, the shell of Codex, or what makes Claude Code show the weather."""
    wanted = [name for name in tools if name.endswith("weather")]
    return next((name for name in (*wanted, "exec_command", "ToolSearch") if name in tools), None)


def _arguments(tool: str, city: str) -> dict[str, Any]:
    return {"cmd": f"echo sunny in {city}"} if tool == "exec_command" else {"city": city}


def _for_dspy(asked: str, *, greeted: bool) -> str:
    if "next_tool_name" not in asked:
        fields = {"reasoning": "It is known.", "answer": ANSWER}
    elif greeted or "observation_0" in asked:
        fields = {"next_thought": "That is all.", "next_tool_name": "finish", "next_tool_args": "{}"}
    else:
        arguments = json.dumps({"city": "Paris"})
        fields = {"next_thought": "Look.", "next_tool_name": "weather", "next_tool_args": arguments}
    return "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in {**fields, "completed": ""}.items())
