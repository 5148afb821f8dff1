"""Pairs of answers that people compare: shown blind, one after the other, and judged at the sidecar."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slipstream_client import validation
from slipstream_client.service import Service, get_next_pair, post_preference

CHOICES = ("a", "b", "tie", "both_bad", "skip")
MAX_REASON = 10_000

_drawn = random.SystemRandom()


@dataclass(frozen=True)
class PreferencePair:
    """Two answers to one request. Nothing in it says who gave them.

    Attributes:
        messages: the request, in the form of OpenAI's chat completions.
        a, b: the messages of the answers.
        pair_id: at the sidecar; None for answers of one's own.
        tools: the tools that the request offered.
    """

    messages: Sequence[Mapping[str, Any]]
    a: Mapping[str, Any]
    b: Mapping[str, Any]
    pair_id: str | None = None
    tools: Sequence[Mapping[str, Any]] = field(default=())

    @property
    def question(self) -> str:
        """The text of the last message."""
        return _text(self.messages[-1]) if self.messages else ""


@dataclass(frozen=True)
class Preference:
    """A pair and what was chosen.

    Attributes:
        choice: `a`, `b`, `tie`, `both_bad` or `skip`.
        chosen, rejected: the messages of the answers; None where neither was preferred.
    """

    pair: PreferencePair
    choice: str

    @property
    def chosen(self) -> Mapping[str, Any] | None:
        return {"a": self.pair.a, "b": self.pair.b}.get(self.choice)

    @property
    def rejected(self) -> Mapping[str, Any] | None:
        return {"a": self.pair.b, "b": self.pair.a}.get(self.choice)

    def as_example(self) -> dict[str, Any] | None:
        """A row of TRL's conversational preference data; None where neither answer was preferred."""
        if self.chosen is None or self.rejected is None:
            return None
        return {"prompt": list(self.pair.messages), "chosen": [self.chosen], "rejected": [self.rejected]}


Ask = Callable[[PreferencePair], str]
"""Shows a pair to a person and returns her choice."""


def ask_in_terminal(pair: PreferencePair) -> str:
    """Print a pair, and read the choice from the keyboard until it is one."""
    print(f"\n{pair.question}\n\n--- a ---\n{_text(pair.a)}\n\n--- b ---\n{_text(pair.b)}\n")
    while (choice := input(f"Which is better ({', '.join(CHOICES)})? ").strip()) not in CHOICES:
        pass
    return choice


class HumanPreferenceCollector:
    """Collects what one annotator prefers.

    Args:
        annotator: 1 to 64 letters, digits and `.`, `_`, `@`, `-`; without it the name of the key of
            `configure(api_key=...)`, which needs the role `annotator`.
        ask: shows a pair and returns the choice: in the terminal, or by a page of your own.
    """

    def __init__(self, annotator: str | None = None, ask: Ask = ask_in_terminal) -> None:
        self._annotator = annotator
        self._ask = ask

    def next(self, kind: str | None = None) -> PreferencePair | None:
        """The next pair that this annotator has not judged, kept for her for a while; None if there is none.

        Args:
            kind: `production` or `runs`; None for both.

        Raises:
            SidecarAway, SidecarRefused: the sidecar gave none.
        """
        with Service() as service:
            found = service.send(get_next_pair(self._annotator, kind))
        if found is None:
            return None
        return PreferencePair(found["messages"], found["a"], found["b"], found["pair_id"], found["tools"] or ())

    def judge(self, pair: PreferencePair, choice: str, reason: str | None = None) -> Preference:
        """Say which answer of a pair is better. When this returns, it is stored. The same again is no error.

        Args:
            pair: of `next`.
            choice: `a`, `b`, `tie`, `both_bad` or `skip`.
            reason: in words; what is beyond 10000 characters is cut off.

        Raises:
            ValueError: the choice is none of these, or the pair is not the sidecar's.
            SidecarAway, SidecarRefused: it was not stored.
        """
        if pair.pair_id is None:
            raise ValueError("pair: expected one of the sidecar's, found answers that it does not have")
        body: dict[str, Any] = {"pair_id": pair.pair_id, "choice": _choice(choice)}
        if self._annotator is not None:
            body["annotator"] = self._annotator
        if reason is not None:
            body["reason"] = validation.clean(reason[:MAX_REASON])
        with Service() as service:
            service.send(post_preference(body))
        return Preference(pair, choice)

    def collect(
        self,
        question: str | Sequence[Mapping[str, Any]] | None = None,
        response_a: str | Mapping[str, Any] | None = None,
        response_b: str | Mapping[str, Any] | None = None,
    ) -> Preference | None:
        """Ask the annotator about the sidecar's next pair, or about two answers of your own.

        The sidecar does not have answers of your own, so these and the choice stay in this process. They are shown in
        an order that is drawn.

        Args:
            question: text, or messages.
            response_a, response_b: texts, or messages: with the question, or none of the three.

        Returns:
            The choice, by `response_a` and `response_b` where they were given; None if the sidecar has no pair.

        Raises:
            ValueError: some of the three are missing, or `ask` returned no choice.
            SidecarAway, SidecarRefused: as of `next` and `judge`.
        """
        if question is None and response_a is None and response_b is None:
            pair = self.next()
            return None if pair is None else self.judge(pair, self._ask(pair))
        if question is None or response_a is None or response_b is None:
            raise ValueError("question, response_a, response_b: give all of them, or none")
        messages = [{"role": "user", "content": question}] if isinstance(question, str) else question
        own = PreferencePair(messages, _message(response_a), _message(response_b))
        swapped = _drawn.random() < 0.5
        shown = PreferencePair(messages, own.b, own.a) if swapped else own
        choice = _choice(self._ask(shown))
        return Preference(own, {"a": "b", "b": "a"}.get(choice, choice) if swapped else choice)


def _choice(choice: str) -> str:
    if choice not in CHOICES:
        raise ValueError(f"choice: expected one of {', '.join(CHOICES)}, found {choice!r}")
    return choice


def _message(response: str | Mapping[str, Any]) -> Mapping[str, Any]:
    return {"role": "assistant", "content": response} if isinstance(response, str) else response


def _text(message: Mapping[str, Any]) -> str:
    """The text of a message, and the tools that it calls."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content or ""}]
    lines = ["".join(str(part.get("text", "")) for part in parts)]
    for call in message.get("tool_calls") or ():
        lines.append(f"{call['function']['name']}({call['function']['arguments']})")
    return "\n".join(line for line in lines if line)
