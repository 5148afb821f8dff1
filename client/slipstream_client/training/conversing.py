"""Agents that answer one message at a time, run again as whole conversations with a simulated user."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from slipstream_client.simulated_user.turns import Conversation
from slipstream_client.simulated_user.user import SimulatedUser

_MESSAGES = "messages"
"""The agent's parameter that takes the conversation so far."""


def conversing(agent: Callable[..., Any], user: SimulatedUser) -> Callable[..., Any]:
    """Return a function of the agent's arguments that runs it to the end of a conversation, for a `Conversation`.

    Raises:
        TypeError: `user` is none, or the agent has no parameter `messages`, or is a generator.
    """
    if not isinstance(user, SimulatedUser):
        raise TypeError(f"user: expected a SimulatedUser, found {user!r}")
    signature = inspect.signature(agent)
    if _MESSAGES not in signature.parameters:
        raise TypeError(
            f"user: expected an agent with a parameter `{_MESSAGES}`, found {agent.__qualname__}{signature}"
        )
    if inspect.isgeneratorfunction(agent) or inspect.isasyncgenfunction(agent):
        raise TypeError(f"user: expected an agent that returns its answer, found the generator {agent.__qualname__}")

    def begun(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Callable[[Any], Any], Any]:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()

        def respond(messages: Any) -> Any:
            bound.arguments[_MESSAGES] = messages
            return agent(*bound.args, **bound.kwargs)

        return respond, bound.arguments[_MESSAGES]

    @functools.wraps(agent)
    def conversation(*args: Any, **kwargs: Any) -> Conversation:
        return user.converse(*begun(args, kwargs))

    @functools.wraps(agent)
    async def async_conversation(*args: Any, **kwargs: Any) -> Conversation:
        return await user.async_converse(*begun(args, kwargs))

    return async_conversation if inspect.iscoroutinefunction(agent) else conversation
