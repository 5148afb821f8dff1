"""A conversation with a simulated user, turn by turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

from slipstream_client.context import Context, current
from slipstream_client.side_effects.recording import GuardedReplay, RunProblem
from slipstream_client.simulated_user.budget import Purse, Spent, UserBudget
from slipstream_client.simulated_user.endpoint import Answer, Endpoint
from slipstream_client.simulated_user.errors import SimulatedUserError
from slipstream_client.simulated_user.messages import Message, answered, seen_by_user, text_of

_RULES = "You are the user in a conversation with an assistant. Write the user's next message, and nothing else."
_STOP_RULE = "When your request is settled, or you give up, write {stop}"


@dataclass(frozen=True, eq=False)
class Part:
    """The part that a simulated user plays; see `SimulatedUser`."""

    prompt: str | Callable[[Context], str]
    endpoint: Endpoint
    max_turns: int
    stop: str | Callable[[list[Message]], object] | None
    budget: UserBudget


@dataclass(frozen=True)
class Conversation:
    """A conversation with a simulated user, from its first message to its end.

    Attributes:
        messages: of both sides, and what the agent added of its tools.
        ended: `stop`: the user, or the stop function, ended it; `max_turns`; None: it was left before its end.
        closing: what the user's model wrote beside the stop phrase, which the agent did not see; often empty.
        turns: messages of the user that the agent saw, of this conversation.
        tokens: that the user's model took, where its endpoint tells.
    """

    messages: tuple[Message, ...]
    ended: Literal["stop", "max_turns"] | None
    closing: str
    turns: int
    tokens: int

    @property
    def answers(self) -> tuple[str, ...]:
        """The texts of the agent's messages."""
        texts = (text_of(each) for each in self.messages if each.get("role") == "assistant")
        return tuple(text for text in texts if text)


class Turns:
    """A conversation while it goes on: iterating gives the user's messages, and `reply` takes the agent's answers.

    Attributes:
        messages: a copy of those so far.
        conversation: as it stands, or as it has ended.
    """

    def __init__(self, part: Part, messages: list[Message]) -> None:
        self._part = part
        self._messages = messages
        self._spent = _spent_by_run(part.budget)  # of this conversation, outside of replays
        self._ended: Literal["stop", "max_turns"] | None = None
        self._closing = ""
        self._turns = 0
        self._tokens = 0
        self._waits = False

    @property
    def messages(self) -> list[Message]:
        return deepcopy(self._messages)

    @property
    def conversation(self) -> Conversation:
        return Conversation(tuple(self.messages), self._ended, self._closing, self._turns, self._tokens)

    def reply(self, answer: object) -> None:
        """Take the agent's answer to the user's last message: its text, a message, or the messages of its turn.

        Raises:
            TypeError: it is something else.
            RuntimeError: there is no message to answer.
        """
        if not self._waits:
            raise RuntimeError("reply: the user has not written since the last answer")
        self._messages += deepcopy(answered(answer))
        self._waits = False

    def __iter__(self) -> Iterator[str]:
        yield self._begun()
        while self._goes_on():
            with _Dropping():
                answer = self._part.endpoint.ask(self._asked(), self._purse())
                message = self._heard(answer)
            if message is None:
                return
            yield message

    async def __aiter__(self) -> AsyncIterator[str]:
        yield self._begun()
        while self._goes_on():
            with _Dropping():
                answer = await self._part.endpoint.async_ask(self._asked(), self._purse())
                message = self._heard(answer)
            if message is None:
                return
            yield message

    def _begun(self) -> str:
        if self._turns:
            raise RuntimeError("a conversation is gone through once: begin another one with turns()")
        self._turns, self._waits = 1, True
        return text_of(self._messages[-1])

    def _goes_on(self) -> bool:
        if self._waits:
            raise RuntimeError("the agent has not answered the user's message: call reply(answer)")
        stop = self._part.stop
        if callable(stop):
            with _Dropping():
                try:
                    if stop(self.messages):
                        self._ended = "stop"
                except Exception as error:
                    raise SimulatedUserError("user_failed", f"stop: {type(error).__name__}: {error}") from error
        if self._ended is None and self._turns >= self._part.max_turns:
            self._ended = "max_turns"
        return self._ended is None

    def _asked(self) -> list[Message]:
        prompt = self._part.prompt
        if not isinstance(prompt, str):
            try:
                prompt = prompt(current())
            except Exception as error:
                raise SimulatedUserError("user_failed", f"prompt: {type(error).__name__}: {error}") from error
            if not isinstance(prompt, str):
                raise SimulatedUserError("user_failed", f"prompt: expected text, found {prompt!r}")
        stop = self._part.stop
        rules = [_RULES, _STOP_RULE.format(stop=stop)] if isinstance(stop, str) else [_RULES]
        return seen_by_user(self._messages, "\n\n".join([prompt, " ".join(rules)]))

    def _purse(self) -> Purse:
        """The budget of the run and its group. Raises SimulatedUserError in what an ended replay has left behind."""
        context, budget = current(), self._part.budget
        if context.ended:
            raise SimulatedUserError("user_failed", "the replay that the conversation belongs to has ended")
        replay = context.replay
        if not isinstance(replay, GuardedReplay):
            return Purse([self._spent], budget.counts_tokens)
        run = replay.kept.setdefault(self._part, _spent_by_run(budget))
        group = replay.group.setdefault(self._part, Spent("group", budget.group_calls, budget.group_tokens))
        return Purse([run, group], budget.counts_tokens)

    def _heard(self, answer: Answer) -> str | None:
        """Take the model's answer; returns the message that the agent sees, or None at the conversation's end."""
        self._tokens += answer.tokens or 0
        stop = self._part.stop
        if isinstance(stop, str) and stop in answer.text:
            self._ended, self._closing = "stop", answer.text.replace(stop, "").strip()
            return None
        self._messages.append({"role": "user", "content": answer.text})
        self._turns += 1
        self._waits = True
        return answer.text


class _Dropping:
    """A block whose failure drops the run that it belongs to, whatever the agent makes of the error.

    So does an interruption, such as by a timeout of the agent's own: the conversation lacks its end.
    """

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        replay = current().replay
        if error is not None and isinstance(replay, GuardedReplay):
            reason = error.reason if isinstance(error, SimulatedUserError) else "user_failed"
            replay.fail(RunProblem(reason, str(error) or f"the simulated user: {type(error).__name__}"))


def _spent_by_run(budget: UserBudget) -> Spent:
    return Spent("run", budget.run_calls, budget.run_tokens)
