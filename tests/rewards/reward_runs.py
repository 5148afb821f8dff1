"""Runs to judge, written down shortly."""

import json
from typing import Any

from prometheus_client import CollectorRegistry

from slipstream.isolation import Isolation
from slipstream.metrics import Metrics
from slipstream.rewards import Reward, RewardModel, RewardsSettings
from slipstream.trajectory import Call, Feedback, PolicyCall, Run, Task

ISOLATION = Isolation()
"""The child processes of these tests, which start once."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
SEARCH = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}


def tool_call(name: str, arguments: Any = None) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": text}}


def completion(
    text: str | None = None, *calls: dict[str, Any], finish: str = "stop", tokens: int = 7
) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = list(calls)
    return {
        "id": "chatcmpl-1",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"completion_tokens": tokens},
    }


def user(text: str = "What is it?") -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def shadow(
    answer: dict[str, Any] | str,
    production: dict[str, Any] | str = "a production answer",
    *,
    messages: list[dict[str, Any]] | None = None,
    tools: list[dict[str, Any]] | None = None,
    metadata: dict[str, Any] | None = None,
    position: int = 0,
    task_calls: int = 1,
    latency: float = 0.1,
    request: dict[str, Any] | None = None,
    feedback: tuple[Feedback, ...] = (),
    production_feedback: tuple[Feedback, ...] = (),
) -> Run:
    """A shadow call of the call at `position` in a task of `task_calls` calls."""
    body: dict[str, Any] = {"messages": messages or [user()], **(request or {})}
    if tools:
        body["tools"] = tools
    answer = completion(answer) if isinstance(answer, str) else answer
    production = completion(production) if isinstance(production, str) else production
    calls = tuple(Call("t1", index, body, production) for index in range(task_calls))
    return Run(
        task=Task("t1", "s1", calls, metadata=metadata or {}),
        group_id=f"t1/{position}",
        run_id=0,
        calls=(PolicyCall(body, answer, "m1", latency),),
        production=calls[position],
        feedback=feedback,
        production_feedback=production_feedback,
    )


def replay(answers: list[dict[str, Any]], production: list[dict[str, Any]], **kwargs: Any) -> Run:
    """An agent replay: the policy's answers in order, beside production's for the same task."""
    body = {"messages": [user()], "tools": [WEATHER, SEARCH]}
    return Run(
        task=Task("t1", "s1", tuple(Call("t1", i, body, answer) for i, answer in enumerate(production)), **kwargs),
        group_id="t1",
        run_id=0,
        calls=tuple(PolicyCall(body, answer, f"m{i}") for i, answer in enumerate(answers)),
        kind="agent_replay",
    )


def reward_model(metrics: Metrics | None = None, **settings: Any) -> RewardModel:
    """The reward model of these settings of the section `rewards`; the caller closes it."""
    return RewardModel(RewardsSettings.model_validate(settings), metrics or Metrics(CollectorRegistry()), ISOLATION)


async def score(run: Run, *calculators: Any, **settings: Any) -> Reward:
    """The reward that a configuration with these calculators gives."""
    model = reward_model(calculators=calculators, **settings)
    try:
        return await model.score(run)
    finally:
        await model.aclose()


async def value(run: Run, *calculators: Any) -> float:
    """The same without clipping."""
    return (await score(run, *calculators, clip=(-10, 10))).value
