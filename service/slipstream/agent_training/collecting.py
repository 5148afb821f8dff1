"""Trajectories of an agent, collected by running it at the sidecar."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slipstream.agent_training.trajectories import FIELDS, trajectory


class DataCollector:
    """Runs an agent and writes down what it did.

    Args:
        collect_fields: which of `messages`, `thoughts`, `tool_calls`, `rewards` and `user_feedback`; by default all.

    Raises:
        ValueError: a field is unknown.
    """

    def __init__(self, collect_fields: Mapping[str, bool] | None = None) -> None:
        wanted = dict.fromkeys(FIELDS, True) | dict(collect_fields or {})
        if unknown := wanted.keys() - set(FIELDS):
            raise ValueError(f"collect_fields: expected {', '.join(FIELDS)}, found {', '.join(sorted(unknown))}")
        self._fields = [name for name in FIELDS if wanted[name]]

    def collect(
        self,
        agent: Callable[[str], Any],
        user_input: str,
        user_feedback: Mapping[str, Any] | None = None,
        rewards: Mapping[str, float] | None = None,
    ) -> dict[str, Any]:
        """Have the agent do one task of its own at the sidecar, and post what the user thought of it.

        Args:
            agent: returns a text, or a mapping with `messages`, all of the conversation.
            user_feedback: `rating` from 1 to 5, and a `comment`.
            rewards: what is known of the answer, by component.

        Returns:
            The trajectory. `conversation_id` is the task's id at the sidecar.

        Raises:
            ValueError: the feedback cannot be used, or the agent is async.
        """
        from slipstream_client import feedback, mark

        task_id = f"conv-{uuid.uuid4().hex}"
        with mark(task_id=task_id):
            answer = agent(user_input)
        if inspect.iscoroutine(answer):
            answer.close()
            raise ValueError(
                "agent: expected a plain function, found an async one; give it as lambda: asyncio.run(...)"
            )
        found = dict(rewards or {})
        if user_feedback is not None:
            rating: Any = user_feedback.get("rating")
            feedback(task_id=task_id, rating=rating, comment=user_feedback.get("comment"), source="user")
            found["user_satisfaction"] = (rating - 1) / 4  # as the sidecar reads a rating
        return trajectory(task_id, _messages(user_input, answer), found, user_feedback, self._fields)


def _messages(user_input: str, answer: Any) -> Sequence[Mapping[str, Any]]:
    if isinstance(answer, Mapping) and isinstance(answer.get("messages"), Sequence):
        messages: Sequence[Mapping[str, Any]] = answer["messages"]
        return messages
    return [{"role": "user", "content": user_input}, {"role": "assistant", "content": str(answer)}]
