"""OpenAI's chat completions API (`/v1/chat/completions`): its calls are in the chat form already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slipstream.dialects import chat_stream
from slipstream.dialects.allowed_tools import is_among_some, narrowed
from slipstream.dialects.body import Reason
from slipstream.dialects.events import event
from slipstream.dialects.form import ChatForm, Held, Unsayable
from slipstream.dialects.thoughts import THOUGHT_PARTS
from slipstream.errors import error_body

_TEXT_PARTS = THOUGHT_PARTS | {"text", "refusal"}
"""Types of parts of a message's content that hold text. Every other part (`image_url`, `input_audio`, `file`,
`video_url`, ...) is a picture, sound or a file."""

_CUSTOM = "custom"
"""The type of tools, and of their calls, whose input is free text: no engine of the policy knows them."""

_PROVIDER_FIELDS = ("web_search_options", "search_parameters", "plugins")
"""Fields of a request that have the provider search or fetch something: OpenAI's, xAI's and OpenRouter's."""

_LEGACY_FIELDS = ("functions", "function_call")
"""Functions and the choice among them, as requests had them before there were `tools`. No engine of the policy reads
them, nor what was said with them: messages with `function_call`, and those of the role `function`."""


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
        unsayable = _unsayable(request)
        return ChatForm(_dict(request), _dict(answer), None if unsayable is None else unsayable.problem)

    def chat_request(self, request: Mapping[str, Any], earlier: Held | None = None) -> dict[str, Any]:
        """The request itself."""
        if (unsayable := _unsayable(request)) is not None:
            raise unsayable
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


def _unsayable(request: Mapping[str, Any]) -> Unsayable | None:
    """The first part of a request that the policy cannot be asked; None if there is none."""
    for place, tool in enumerate(_list(request.get("tools"))):
        if isinstance(tool, dict) and tool.get("type") != "function" and "function" not in tool:
            return Unsayable("unsayable" if tool.get("type") == _CUSTOM else "provider_tool", f"tools[{place}]")
    for field in _PROVIDER_FIELDS:
        if request.get(field) is not None:
            return Unsayable("provider_tool", field)
    if any(kind != "text" for kind in _list(request.get("modalities"))):
        return Unsayable("media", "modalities")
    if request.get("audio") is not None:
        return Unsayable("media", "audio")
    for field in _LEGACY_FIELDS:
        if request.get(field):
            return Unsayable("unsayable", field)
    choice = request.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == _CUSTOM:
        return Unsayable("unsayable", "tool_choice")
    if is_among_some(choice) and narrowed(request) is None:
        return Unsayable("unsayable", "tool_choice")
    return _unsayable_message(request.get("messages"))


def _unsayable_message(messages: Any) -> Unsayable | None:
    """The first part of a conversation that is no text, or no chat with tools."""
    for place, message in enumerate(_list(messages)):
        content = message.get("content")
        if type(content) is list and any(map(_is_media, content)):
            part = [_is_media(part) for part in content].index(True)
            return Unsayable("media", f"messages[{place}].content[{part}]")
        if message.get("audio"):
            return Unsayable("media", f"messages[{place}].audio")
        if message.get("function_call"):
            return Unsayable("unsayable", f"messages[{place}].function_call")
        if message.get("role") == "function":
            return Unsayable("unsayable", f"messages[{place}].role")
        for number, call in enumerate(_list(message.get("tool_calls"))):
            if isinstance(call, dict) and call.get("type") == _CUSTOM:
                return Unsayable("unsayable", f"messages[{place}].tool_calls[{number}]")
    return None


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _is_media(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(kind := part.get("type"), str) and kind not in _TEXT_PARTS


def _deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {key: value for key, value in message.items() if key != "tool_calls"}
    for index, call in enumerate(message.get("tool_calls") or ()):
        yield {"tool_calls": [{"index": index, **call}]}


def _dict(value: Mapping[str, Any]) -> dict[str, Any]:
    """The same object, if it is a dictionary: a captured body is large, and kept as it is."""
    return value if isinstance(value, dict) else dict(value)
