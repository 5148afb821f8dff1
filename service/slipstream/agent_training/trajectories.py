"""Trajectories as the articles write them: a JSON object of messages, thoughts, calls and rewards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from slipstream.datasets.dialogs import thoughts_of
from slipstream.rewards.tool_use import parsed
from slipstream.trajectory import Message, Run, message_text, message_tool_calls

FIELDS = ("messages", "thoughts", "tool_calls", "rewards", "user_feedback")
"""Fields that a collector can be asked for."""


def trajectory_of(run: Run, rewards: Mapping[str, float | None] | None = None) -> dict[str, Any]:
    """Return a run of the policy as a trajectory."""
    messages = [*run.messages, run.calls[-1].message]
    feedback = [{"reward": each.reward, "comment": each.comment} for each in run.feedback]
    return trajectory(run.task.task_id, messages, rewards or {}, feedback[-1] if feedback else None)


def trajectory(
    conversation_id: str,
    messages: Sequence[Message],
    rewards: Mapping[str, float | None],
    user_feedback: Mapping[str, Any] | None = None,
    fields: Sequence[str] = FIELDS,
) -> dict[str, Any]:
    """Return a conversation as a trajectory.

    Args:
        messages: in OpenAI's form; thoughts stand in `<think>` or `reasoning_content`.
        rewards: by component. Of those that are known `total_reward` is the sum, as in the articles, and `reward` the
            mean: the sidecar refuses rewards beyond `rewards.clip`, and a sum soon is.
        fields: that are wanted, of `FIELDS`.
    """
    found: dict[str, Any] = {
        "messages": [dict(message) for message in messages],
        "thoughts": [{"step": step, "content": each} for step, each in enumerate(_thoughts(messages), start=1)],
        "tool_calls": tool_calls(messages),
        "rewards": dict(rewards),
        "user_feedback": None if user_feedback is None else dict(user_feedback),
    }
    kept: dict[str, Any] = {name: value for name, value in found.items() if name in fields}
    known = [value for value in rewards.values() if value is not None]
    if known and "rewards" in fields:
        kept |= {"total_reward": sum(known), "reward": sum(known) / len(known)}
    return {"conversation_id": conversation_id, **kept}


def tool_calls(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the calls in messages, each with its result: `tool`, `args`, `result`.

    Ids are unique within a message only, so that a result belongs to the newest call of its id. `args` is the text as
    it is where it is no JSON object, and `result` None where there is none.
    """
    found: list[dict[str, Any]] = []
    waiting: dict[str, dict[str, Any]] = {}
    for message in messages:
        for call in message_tool_calls(message):
            read = parsed(call)
            arguments = (call.get("function") or {}).get("arguments") if read.arguments is None else read.arguments
            made = {"tool": read.name, "args": arguments, "result": None}
            found.append(made)
            waiting[str(call.get("id"))] = made
        if message.get("role") == "tool" and (of := waiting.pop(str(message.get("tool_call_id")), None)) is not None:
            of["result"] = message_text(message)
    return found


def written(trajectories: Sequence[Mapping[str, Any]]) -> str:
    """Return trajectories as JSONL."""
    return "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in trajectories)


def _thoughts(messages: Sequence[Message]) -> list[str]:
    found: list[str] = []
    for message in messages:
        if message.get("role") == "assistant":
            reasoning = message.get("reasoning_content") or message.get("reasoning")
            found += [reasoning] if isinstance(reasoning, str) and reasoning else []
            found += thoughts_of(message_text(message))
    return found
