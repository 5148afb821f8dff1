"""SimulatedUser: a model that plays the user of an agent, from a prompt and the conversation so far."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import httpx

from slipstream_client.context import Context
from slipstream_client.simulated_user.budget import UserBudget
from slipstream_client.simulated_user.endpoint import OPENAI, Endpoint
from slipstream_client.simulated_user.messages import Message, first_messages
from slipstream_client.simulated_user.turns import Conversation, Part, Turns

First = str | Sequence[Mapping[str, Any]]
"""The user's first message, or messages of which the last one is the user's."""


class SimulatedUser:
    """Plays the user, for replays of several turns.

        user = SimulatedUser("gpt-4o-mini", "You want your money back for order 17. Be short.", max_turns=6)

        @runner.agent(user=user)
        def respond(messages: list) -> str: ...

    Its model is asked at an endpoint of its own, never through the sidecar. If it fails, or its budget is spent, the
    run is dropped: `SimulatedUserError`. Several runs, threads and event loops may use one object.

    Args:
        model: its name at the endpoint.
        prompt: who the user is and what he wants; or a function of the `Context` (labels and metadata of the task).
        base_url: of an endpoint of OpenAI's chat completions; its key is `SLIPSTREAM_USER_API_KEY` of the environment,
            or, at OpenAI itself, `OPENAI_API_KEY`.
        max_turns: messages of the user in a conversation, the first one included; then it ends.
        stop: a phrase by which the model ends the conversation (its instructions say so); or a function of the messages
            so far that returns true after an answer of the agent that was the last one. None: only `max_turns` ends it.
        budget: a `UserBudget`; what is spent beyond it drops the run.
        seed: goes with each request, the same for all runs of a group.
        options: further fields of each request, such as `temperature` and `max_tokens`.

    Raises:
        TypeError, ValueError: an argument cannot be used; the message begins with its name.
    """

    def __init__(
        self,
        model: str,
        prompt: str | Callable[[Context], str],
        base_url: str = OPENAI,
        *,
        max_turns: int = 8,
        stop: str | Callable[[list[Message]], object] | None = "[END]",
        budget: UserBudget | None = None,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(prompt, str) and not callable(prompt):
            raise TypeError(f"prompt: expected text or a function of the context, found {prompt!r}")
        if stop is not None and not callable(stop) and (not isinstance(stop, str) or not stop.strip()):
            raise TypeError(f"stop: expected a phrase, a function of the messages or None, found {stop!r}")
        if isinstance(max_turns, bool) or not isinstance(max_turns, int) or max_turns < 1:
            raise ValueError(f"max_turns: expected a whole number of at least 1, found {max_turns!r}")
        if budget is not None and not isinstance(budget, UserBudget):
            raise TypeError(f"budget: expected a UserBudget, found {budget!r}")
        endpoint = Endpoint(_address(base_url), _fields(model, seed, options))
        self._part = Part(prompt, endpoint, max_turns, stop, budget or UserBudget())

    def turns(self, first: First) -> Turns:
        """Begin a conversation that the agent's own loop goes through, by `for` or `async for`.

            turns = user.turns("Where is my parcel?")
            for message in turns:
                turns.reply(agent(message))

        Raises:
            TypeError, ValueError: `first` is neither text nor messages of which the last one is the user's.
        """
        return Turns(self._part, first_messages(first))

    def converse(self, respond: Callable[[list[Message]], object], first: First) -> Conversation:
        """Run an agent to the end of a conversation.

        Args:
            respond: called with a copy of the messages so far, returns the agent's text, a message, or the list of
                messages that its turn adds.

        Raises:
            SimulatedUserError: see there.
            Exception: what the agent raises.
        """
        turns = self.turns(first)
        for _ in turns:
            turns.reply(respond(turns.messages))
        return turns.conversation

    async def async_converse(self, respond: Callable[[list[Message]], Awaitable[object]], first: First) -> Conversation:
        """The asynchronous twin of `converse`."""
        turns = self.turns(first)
        async for _ in turns:
            turns.reply(await respond(turns.messages))
        return turns.conversation


def _address(base_url: str) -> str:
    try:
        url = httpx.URL(base_url)
    except (TypeError, httpx.InvalidURL):
        url = None
    if url is None or url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
        raise ValueError(f"base_url: expected an address such as {OPENAI}, found {base_url!r}")
    if url.userinfo:  # it would be in the log
        raise ValueError("base_url: expected an address without user and password; set SLIPSTREAM_USER_API_KEY")
    return str(url)


def _fields(model: str, seed: int | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    if not isinstance(model, str) or not model:
        raise TypeError(f"model: expected the name of a model, found {model!r}")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise TypeError(f"seed: expected a whole number or None, found {seed!r}")
    own = {"model": model} if seed is None else {"model": model, "seed": seed}
    for name in ("model", "messages", "seed", "stream", "n"):
        if name in (options or {}):
            raise ValueError(f"options: {name} is not among them")
    try:
        json.dumps(dict(options or {}), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"options: expected what JSON can hold: {error}") from None
    return {**(options or {}), **own}
