"""The view of a task and a run for the code that judges them: selection strategies and reward calculators.

These are read-only pictures of rows in the store. Messages, requests and answers are plain dictionaries in the
form of OpenAI's chat completions API, redacted as they were stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from slipstream.tenants import DEFAULT

Message = Mapping[str, Any]


def answer_message(answer: Mapping[str, Any] | None) -> Message:
    """The assistant message of a chat completion, or an empty one where there is none."""
    choices = (answer or {}).get("choices") or []
    return (choices[0].get("message") or {}) if choices else {}


def message_text(message: Message) -> str:
    """The text of a message: a plain string, or the joined text parts of a list content; "" where there is none."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return ""


def message_tool_calls(message: Message) -> Sequence[Mapping[str, Any]]:
    """The tool calls of an assistant message, in OpenAI's form; empty where there are none."""
    return message.get("tool_calls") or ()


@dataclass(frozen=True, slots=True)
class Feedback:
    """One reward that a user or a program gave to an answer.

    Attributes:
        reward: the reward it stands for, finite, in the configured range; None where only a comment was given.
        source: who gave it, as the caller said, or None.
        created_at: when it was stored, Unix seconds.
    """

    reward: float | None
    comment: str | None = None
    source: str | None = None
    created_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Call:
    """One captured call of a user's agent, in the form of OpenAI's chat completions API.

    Attributes:
        position: place within its task, counted from 0.
        request: the request body that the agent sent.
        answer: the whole `chat.completion` object, put together from the stream where it was streamed.
        latency: seconds from the request's arrival to the answer's last byte.
        started_at: Unix seconds.
        problem: the reason why the policy cannot be asked what production was asked, such as `media`; None where it
            can.
        dialect: in which the agent asked: `chat`, `responses` or `messages`.
        variant: who gave the answer: `production`, or `version:N` of the policy; None where no share was set, and
            production gave it.
    """

    task_id: str
    position: int
    request: Mapping[str, Any]
    answer: Mapping[str, Any]
    msg_id: str | None = None
    latency: float = 0.0
    started_at: float = 0.0
    problem: str | None = None
    dialect: str = "chat"
    variant: str | None = None

    @property
    def by_policy(self) -> bool:
        """Return whether a version of the policy gave the answer, and not production."""
        return self.variant not in (None, "production")

    @property
    def messages(self) -> Sequence[Message]:
        return self.request.get("messages") or ()

    @property
    def model(self) -> str | None:
        model = self.request.get("model")
        return model if isinstance(model, str) else None

    @property
    def has_tools(self) -> bool:
        return bool(self.request.get("tools"))

    @property
    def message(self) -> Message:
        return answer_message(self.answer)


@dataclass(frozen=True, slots=True)
class Task:
    """One user request to the agent: the calls it took, in order (a trajectory).

    Attributes:
        tenant: whose task it is; the ids are those that the tenant knows.
    """

    task_id: str
    session_id: str
    calls: tuple[Call, ...]
    labels: frozenset[str] = frozenset()
    marked: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tenant: str = DEFAULT

    @property
    def model(self) -> str | None:
        return self.calls[0].model if self.calls else None

    @property
    def has_tools(self) -> bool:
        return any(call.has_tools for call in self.calls)


@dataclass(frozen=True, slots=True)
class PolicyCall:
    """One chat completion of the policy model within a run.

    Attributes:
        msg_id: the completion's id, by which the Explorer knows the experience.
        latency: seconds.
        policy_version: the version that answered, as far as it is known.
    """

    request: Mapping[str, Any]
    answer: Mapping[str, Any]
    msg_id: str
    latency: float = 0.0
    policy_version: int | None = None

    @property
    def message(self) -> Message:
        return answer_message(self.answer)

    @property
    def text(self) -> str:
        return message_text(self.message)

    @property
    def tool_calls(self) -> Sequence[Mapping[str, Any]]:
        return message_tool_calls(self.message)

    @property
    def finish_reason(self) -> str | None:
        choices = self.answer.get("choices") or [{}]
        reason: str | None = choices[0].get("finish_reason")
        return reason

    @property
    def usage(self) -> Mapping[str, Any]:
        return self.answer.get("usage") or {}


@dataclass(frozen=True, slots=True)
class Run:
    """One finished execution by the policy model, as a reward calculator sees it.

    A shadow call has one policy call and the captured production call that it repeats; an agent replay has as many
    policy calls as the agent made, and no single production call.

    Attributes:
        group_id: names the runs that started from the same prompt.
        run_id: counted from 0 within the group.
        kind: how the run came about.
        calls: the policy's calls, in order, at least one.
        production: the captured call that was repeated; None for an agent replay.
        labels, metadata: what marks and headers said about the task; `metadata["reference"]` is the reference answer.
        feedback: what was posted about the policy's own answers, oldest first.
        production_feedback: what users said about production's answer, of an agent replay about the last one of its
            task: context, never this run's reward.
        blocked: of an agent replay, the guarded tools that were kept from a write which production did not make, by
            name, once a call.
    """

    task: Task
    group_id: str
    run_id: int
    calls: tuple[PolicyCall, ...]
    production: Call | None = None
    kind: Literal["shadow_call", "agent_replay"] = "shadow_call"
    feedback: tuple[Feedback, ...] = ()
    production_feedback: tuple[Feedback, ...] = ()
    blocked: tuple[str, ...] = ()

    @property
    def labels(self) -> frozenset[str]:
        return self.task.labels

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self.task.metadata

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation that the policy's last call continued."""
        return self.calls[-1].request.get("messages") or ()

    @property
    def text(self) -> str:
        """The text of the policy's last answer."""
        return self.calls[-1].text

    @property
    def tool_calls(self) -> Sequence[Mapping[str, Any]]:
        """Every tool call that the policy made in this run, in order."""
        return [call for policy_call in self.calls for call in policy_call.tool_calls]

    @property
    def latency(self) -> float:
        """Seconds that the policy's calls took together."""
        return sum(call.latency for call in self.calls)

    @property
    def policy_version(self) -> int | None:
        """The version that gave the last answer."""
        return self.calls[-1].policy_version
