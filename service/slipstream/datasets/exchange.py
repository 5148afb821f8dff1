"""One exchange with a model as the part of a row: the prompt, the tools, and the answer that is taught."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.dialects.allowed_tools import is_among_some, narrowed
from slipstream.jsontext import to_json
from slipstream.trajectory import answer_message

_WHOLE = ("stop", "tool_calls", None)
"""Reasons for which an answer ends when it is whole. None: its server gives none."""

_PARTS = ("content", "tool_calls", "name", "tool_call_id", "role")
"""Fields of a message that are taught, beside thoughts."""


class Unfit(Exception):
    """An exchange cannot be taught. The argument is a reason in a few stable words, which are counted."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A prompt of at least one message, and an assistant message with text or tool calls.

    Attributes:
        tools: that the model was shown.
    """

    prompt: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...]
    answer: Mapping[str, Any]


def exchange(request: Mapping[str, Any], answer: Mapping[str, Any], *, thoughts: bool) -> Exchange:
    """The exchange of a request and its answer, both in the chat form.

    Args:
        thoughts: keep those of the messages: the policy gave the answer. The thoughts in production's requests and
            answers are another model's, which the policy is not shown.

    Raises:
        Unfit: the answer was cut, is empty, or is a refusal; the prompt is empty, or has something else than text, or
            its template was given more than a row can say.
    """
    messages = request.get("messages") or ()
    if not messages:
        raise Unfit("no messages")
    if request.get("chat_template_kwargs"):
        raise Unfit("chat_template_kwargs")
    choices: Sequence[Mapping[str, Any]] = answer.get("choices") or ({},)
    if choices[0].get("finish_reason") not in _WHOLE:
        raise Unfit("answer not whole")
    message = answer_message(answer)
    if message.get("refusal"):
        raise Unfit("refusal")
    if message.get("function_call"):
        raise Unfit("call in the form before tools")
    *prompt, taught = with_call_ids([*(_plain(each, thoughts) for each in messages), answered(message, thoughts)])
    return Exchange(tuple(prompt), _shown_tools(request), taught)


def answered(message: Mapping[str, Any], thoughts: bool = False) -> dict[str, Any]:
    """The parts of an assistant message that are taught.

    Raises:
        Unfit: there are none, or thoughts alone.
    """
    plain = _plain({**message, "role": "assistant"}, thoughts)
    plain.pop("name", None)
    if not plain.get("tool_calls") and not plain.get("content"):
        raise Unfit("empty answer")
    plain.setdefault("content", "")
    return plain


def with_call_ids(messages: Iterable[Any]) -> list[Any]:
    """A conversation whose tool calls are named in their order: `call_0`, `call_1` and so on.

    Servers draw these names by lot, which would make two equal conversations different. A result keeps to its call,
    also where a server uses a name again in a later turn; one of no call keeps its name.
    """
    named: dict[Any, str] = {}
    count = 0
    found = []
    for message in messages:
        given = message
        if isinstance(message, Mapping) and isinstance(calls := message.get("tool_calls"), list):
            again = []
            for call in calls:
                if isinstance(call, Mapping):
                    named[str(call.get("id"))] = f"call_{count}"
                    again.append({**call, "id": f"call_{count}"})
                    count += 1
                else:
                    again.append(call)
            given = {**message, "tool_calls": again}
        elif isinstance(message, Mapping) and (name := str(message.get("tool_call_id"))) in named:
            given = {**message, "tool_call_id": named[name]}
        found.append(given)
    return found


def says_the_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two assistant messages have the same text and the same calls, whatever was thought before."""
    try:
        return with_call_ids([answered(one)]) == with_call_ids([answered(other)])
    except Unfit:
        return dict(one) == dict(other)


def _plain(message: Mapping[str, Any], thoughts: bool) -> dict[str, Any]:
    plain = {name: message[name] for name in _PARTS if message.get(name) is not None}
    if plain.get("role") == "function" or "role" not in plain:
        raise Unfit("message of an unknown role")
    if "content" in plain:
        plain["content"] = _text(plain["content"])
    if calls := plain.get("tool_calls"):
        plain["tool_calls"] = [_tool_call(call) for call in calls]
    if thoughts and plain["role"] == "assistant":
        thought = message.get("reasoning") or message.get("reasoning_content")
        if isinstance(thought, str) and thought:
            plain["reasoning_content"] = thought
    return plain


def _shown_tools(request: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The functions that the Explorer shows the model, by the choice among them.

    Raises:
        Unfit: the choice is none that the Explorer takes.
    """
    choice = request.get("tool_choice")
    tools = [tool for tool in request.get("tools") or () if tool.get("type") == "function"]
    if choice is None or choice in ("auto", "required"):
        return tuple(tools)
    if choice == "none":
        return ()
    if is_among_some(choice) and (allowed := narrowed(request)) is not None:
        return tuple(allowed["tools"])
    if isinstance(choice, Mapping) and choice.get("type") == "function":
        function = choice.get("function")
        name = function.get("name") if isinstance(function, Mapping) else None
        named = tuple(tool for tool in tools if tool["function"].get("name") == name)
        if named:
            return named
    raise Unfit("tool_choice")


def _tool_call(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise Unfit("call of something else than a function")
    arguments = function.get("arguments", "{}")
    if isinstance(arguments, Mapping):  # as some servers give them
        arguments = to_json(arguments).decode()
    if not isinstance(arguments, str):
        raise Unfit("arguments that are no JSON object")
    called = {"name": function["name"], "arguments": arguments}
    return {"id": str(call.get("id") or ""), "type": "function", "function": called}


def _text(content: Any) -> str:
    """The text of a message; several parts are joined by line ends, as the engines join them."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise Unfit("content that is not text")
    texts = []
    for part in content:
        if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise Unfit("content that is not text")
        texts.append(part["text"])
    return "\n".join(texts)
