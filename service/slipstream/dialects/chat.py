"""OpenAI's chat completions API (`/v1/chat/completions`): its calls are in the chat form already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from slipstream.dialects import chat_stream
from slipstream.dialects.body import Reason
from slipstream.dialects.events import event
from slipstream.dialects.form import ChatForm, Held, Problem, Unsayable
from slipstream.errors import error_body

_TEXT_PARTS = frozenset({"text", "refusal", "thinking", "reasoning"})
"""Types of parts of a message's content that hold text. Every other part (`image_url`, `input_audio`, `file`,
`video_url`, ...) is a picture, sound or a file."""

_CLIENT_TOOLS = ("function", "custom")
"""Types of tools that the agent runs itself."""

_PROVIDER_FIELDS = ("web_search_options", "search_parameters", "plugins")
"""Fields of a request that have the provider search or fetch something: OpenAI's, xAI's and OpenRouter's."""


class ChatTranslator:
    """A `Translator` that has nothing to translate."""

    def is_request(self, request: Mapping[str, Any]) -> bool:
        return is_conversation(request.get("messages"))

    def assemble(self, body: bytes, request: Mapping[str, Any]) -> dict[str, Any]:
        return chat_stream.assemble(body, choices_asked(request))

    def flaw(self, answer: Mapping[str, Any], request: Mapping[str, Any], *, whole: bool) -> Reason | None:
        choices = answer.get("choices")
        if not whole and not _have_finished(choices, choices_asked(request)):
            return "incomplete"
        return None if _are_choices(choices) else "no_answer"

    def history(self, request: Mapping[str, Any]) -> str | None:
        return None

    def chat_form(self, request: Mapping[str, Any], answer: Mapping[str, Any], earlier: Held | None = None) -> ChatForm:
        return ChatForm(_dict(request), _dict(answer), _problem(request))

    def chat_request(self, request: Mapping[str, Any], earlier: Held | None = None) -> dict[str, Any]:
        """The request itself."""
        if (at := _media_at(request.get("messages"))) is not None:
            raise Unsayable("media", at)
        return _dict(request)

    def answer(self, completion: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
        return _dict(completion)

    def stream(self, answer: Mapping[str, Any]) -> Iterator[bytes]:
        """Each choice in turn; the usage is in the last chunk, since many clients read `choices[0]` of each."""
        head = {key: value for key, value in answer.items() if key not in ("choices", "usage")}
        head["object"] = "chat.completion.chunk"
        choices = answer["choices"]
        for place, choice in enumerate(choices):
            index = choice.get("index", place)
            for delta in _deltas(choice["message"]):
                yield event({**head, "choices": [{"index": index, "delta": delta, "finish_reason": None}]})
            end = {key: value for key, value in choice.items() if key != "message"}
            usage = {"usage": answer["usage"]} if place == len(choices) - 1 and answer.get("usage") else {}
            yield event({**head, "choices": [{**end, "index": index, "delta": {}}], **usage})
        yield b"data: [DONE]\n\n"

    def error(self, status: int, message: str, code: str | None, param: str | None) -> dict[str, Any]:
        kind = "invalid_request_error" if status < 500 else "server_error"
        return error_body(message, kind=kind, code=code, param=param)


def is_conversation(messages: Any) -> bool:
    """Return whether these can be the messages of a chat."""
    return isinstance(messages, list) and bool(messages) and not set(map(type, messages)) - {dict}


def choices_asked(request: Mapping[str, Any]) -> int:
    """`n` of the request."""
    asked = request.get("n")
    return asked if isinstance(asked, int) else 1


def _have_finished(choices: Any, asked: int) -> bool:
    """Return whether as many choices as requested have a finish reason."""
    if not isinstance(choices, list) or len(choices) < asked:
        return False
    return all(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices)


def _are_choices(choices: Any) -> bool:
    return (
        isinstance(choices, list)
        and bool(choices)
        and all(isinstance(choice, dict) and isinstance(choice.get("message"), dict) for choice in choices)
    )


def _problem(request: Mapping[str, Any]) -> Problem | None:
    tools = request.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict) and tool.get("type") not in _CLIENT_TOOLS and "function" not in tool:
            return "provider_tool"
    if any(request.get(field) is not None for field in _PROVIDER_FIELDS):
        return "provider_tool"
    return None if _media_at(request.get("messages")) is None else "media"


def _media_at(messages: Any) -> str | None:
    """The first part of a conversation that is no text, as the path of its field; None if all is text."""
    for place, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content")
        if type(content) is list and any(map(_is_media, content)):
            return f"messages[{place}].content[{[_is_media(part) for part in content].index(True)}]"
        if message.get("audio"):
            return f"messages[{place}].audio"
    return None


def _is_media(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(kind := part.get("type"), str) and kind not in _TEXT_PARTS


def _deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {key: value for key, value in message.items() if key != "tool_calls"}
    for index, call in enumerate(message.get("tool_calls") or ()):
        yield {"tool_calls": [{"index": index, **call}]}


def _dict(value: Mapping[str, Any]) -> dict[str, Any]:
    """The same object, if it is a dictionary: a captured body is large, and kept as it is."""
    return value if isinstance(value, dict) else dict(value)
