"""The inner form of a call, and the way to it from each dialect.

Agents speak to a model in one of three dialects. The Explorer knows one: a list of chat messages with tools. So each
captured call is also kept in that form, which is all that selection, rewards, conversations and the policy know. The
original stays beside it. What the chat form cannot say is never left out in silence: the form has a problem then, and
the policy is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Protocol, get_args

from slipstream.dialects.body import Reason
from slipstream.errors import SlipstreamError
from slipstream.trajectory import Message, answer_message

Problem = Literal["media", "provider_tool", "history_unseen", "unsayable"]
"""Reasons why the policy cannot be asked what production was asked.

media: it holds an image, sound or a file, and the policy reads text.
provider_tool: a tool that only the provider of the production model runs (a web search, a code interpreter), or what
    came of one.
history_unseen: the provider holds a part of the conversation that never passed here.
unsayable: anything else that the chat form has no word for.
"""

PROBLEMS: tuple[Problem, ...] = get_args(Problem)


class Dialect(StrEnum):
    """A way to ask a model, by the end of its path."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"

    @property
    def messages_field(self) -> str:
        """The field of a request that has the conversation."""
        return "input" if self is Dialect.RESPONSES else "messages"


_ENDS = {"/chat/completions": Dialect.CHAT, "/responses": Dialect.RESPONSES, "/messages": Dialect.MESSAGES}


def dialect_of(path: str) -> Dialect | None:
    """The dialect of a POST to this path, as it was sent, without the query; None where it asks for no answer in any.

    The messages of the Assistants API (`/threads/{thread}/messages`) are added to a conversation, and not answered.
    """
    for end, dialect in _ENDS.items():
        if path.endswith(end):
            return None if dialect is Dialect.MESSAGES and "/threads/" in path else dialect
    return None


class Unsayable(SlipstreamError):
    """A request has no chat form.

    Attributes:
        at: the field of the request, such as `input[3].content[0]`.
    """

    def __init__(self, problem: Problem, at: str) -> None:
        super().__init__(f"{at}: {problem}")
        self.problem = problem
        self.at = at


class ChatForm(NamedTuple):
    """A call in the form of OpenAI's chat completions API.

    Attributes:
        request: with at least one message. Where there is a problem it is for reading only: what it has no word for
            stands in it as it came.
        answer: a whole `chat.completion` object; its id is that of the original answer.
        problem: the reason why the policy cannot be asked this; None where `request` says all that the original does.
    """

    request: dict[str, Any]
    answer: dict[str, Any]
    problem: Problem | None = None


class Held(NamedTuple):
    """A conversation up to and with an answer, as the provider holds it for the requests that go on from there.

    Attributes:
        messages: in the chat form; without instructions, where those hold for one request only.
        tools: in the chat form, where they hold on.
    """

    messages: Sequence[Message]
    tools: Sequence[Any] = ()


def messages_up_to(request: Mapping[str, Any], answer: Mapping[str, Any], *, instructed: bool) -> list[Message]:
    """The messages of a call in the chat form, its answer's included.

    Args:
        instructed: the first message is instructions, which hold for this call only; it is left out.
    """
    return [*request["messages"][1 if instructed else 0 :], answer_message(answer)]


class Translator(Protocol):
    """One dialect: its requests and answers, as the chat form and back. All of it is pure: JSON values in and out."""

    def is_request(self, request: Mapping[str, Any]) -> bool:
        """Return whether this JSON object can be a request for an answer in this dialect."""
        ...

    def assemble(self, body: bytes, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer that a whole event stream stands for, as it would have come without streaming.

        Raises:
            Unreadable: `too_many_values`, `error_in_stream`, `truncated_stream`, `not_json` or `no_answer`.
        """
        ...

    def flaw(self, answer: Mapping[str, Any], request: Mapping[str, Any], *, whole: bool) -> Reason | None:
        """The reason why this JSON object is no finished answer; None if it is one.

        Args:
            whole: the answer's last byte was seen. If not, the answer itself must say that nothing is missing.
        """
        ...

    def history(self, request: Mapping[str, Any]) -> str | None:
        """The id of the answer (or of the conversation) that the provider holds and that this request goes on from;
        None where the request holds all that was said before."""
        ...

    def chat_form(self, request: Mapping[str, Any], answer: Mapping[str, Any], earlier: Held | None = None) -> ChatForm:
        """The call in the chat form; never raises for an answer without a flaw.

        Args:
            earlier: what `history` names; None where it was not seen.
        """
        ...

    def chat_request(self, request: Mapping[str, Any], earlier: Held | None = None) -> dict[str, Any]:
        """The request in the chat form, to be asked, not streamed.

        Raises:
            Unsayable: it has none.
        """
        ...

    def answer(self, completion: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer, in this dialect, that a `chat.completion` gives to this request; with the completion's id."""
        ...

    def stream(self, answer: Mapping[str, Any]) -> Iterator[bytes]:
        """The server-sent events of an answer, in the order and with the fields that the vendors' SDKs read."""
        ...

    def error(self, status: int, message: str, code: str | None, param: str | None) -> dict[str, Any]:
        """The body of an error in this dialect."""
        ...
