"""Messages of other programs as messages of OpenAI's chat completions API.

Known are that API's own form, the parts of OpenTelemetry's conventions for generative AI, and the words of LangChain
for roles. OpenInference's attributes are brought into the first form by `openinference.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from slipstream.datasets.imports.conversation import Message, Unfit, found
from slipstream.dialects.body import Unreadable, parse_json
from slipstream.jsontext import to_json

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_OTHER_ROLES = {"human": "user", "ai": "assistant", "model": "assistant"}

_KEPT = ("name", "tool_calls", "tool_call_id", "function_call", "refusal", "reasoning_content", "reasoning", "audio")
"""Fields of a message beside its role and content. Others, such as `weight`, are not of the API."""


_SAID = ("role", "content", "parts", "tool_calls", "function_call", "refusal", "choices", "message")
"""Fields of which a message or a completion has one."""


def parsed(value: Any) -> Any:
    """Return the value of a text that is JSON, as attributes of spans hold it; any other value as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[", '"')):
        return value
    try:
        return parse_json(value)
    except Unreadable:
        return value


def messages(value: Any, at: str) -> list[Message]:
    """Return the messages of a conversation, at least one; a text alone is a user's.

    Raises:
        Unfit: it is none, or one of them is none.
    """
    if isinstance(value, str) and value:
        return [{"role": "user", "content": value}]
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, list) or not value:
        raise Unfit(at, f"expected a list of messages, found {found(value)}")
    return [each for place, one in enumerate(value) for each in _messages(one, f"{at}[{place}]")]


def message(value: Any, at: str) -> Message:
    """Return a message of a conversation.

    Raises:
        Unfit: it is none.
    """
    return _messages(value, at)[0]


def answer(value: Any, at: str) -> Message:
    """Return the assistant's message that an answer is: of a completion its first choice, of a list its last, of a text
    the text. JSON that is none of these is the text of an answer in JSON, which exports show as its value.

    Raises:
        Unfit: it is none, or says nothing.
    """
    read = parsed(value)
    if _is_text(read):
        text = value if isinstance(value, str) else to_json(value).decode("utf-8", "surrogatepass")
        return {"role": "assistant", "content": text}
    value = read
    if isinstance(value, Mapping) and isinstance(value.get("choices"), list) and value["choices"]:
        value, at = value["choices"][0], f"{at}.choices[0]"
    if isinstance(value, Mapping) and isinstance(value.get("message"), Mapping):
        value, at = value["message"], f"{at}.message"
    if isinstance(value, list) and value:
        value, at = value[-1], f"{at}[{len(value) - 1}]"
    if not isinstance(value, Mapping):
        raise Unfit(at, f"expected an answer of the assistant, found {found(value)}")
    said = message({"role": "assistant", **value}, at)
    if said["role"] != "assistant":
        raise Unfit(f"{at}.role", f"expected assistant, found {found(said['role'])}")
    if not any(said.get(name) for name in ("content", "tool_calls", "function_call", "refusal")):
        raise Unfit(at, "expected an answer with a text or tool calls, found neither")
    return said


def _is_text(value: Any) -> bool:
    """Return whether an answer is a text, or a value that it said in JSON."""
    if isinstance(value, list):
        return bool(value) and not (isinstance(value[-1], Mapping) and _is_said(value[-1]))
    if isinstance(value, Mapping):
        return bool(value) and not _is_said(value)
    return isinstance(value, str) and value != ""


def _is_said(value: Mapping[str, Any]) -> bool:
    return any(name in value for name in _SAID)


def tools(value: Any, at: str) -> list[Mapping[str, Any]]:
    """Return the tools of a request; none for None. Each may be JSON in a text, or a function without its envelope.

    Raises:
        Unfit: one of them is none.
    """
    value = parsed(value)
    if value is None or value == []:
        return []
    if not isinstance(value, list):
        raise Unfit(at, f"expected a list of tools, found {found(value)}")
    return [_tool(parsed(each), f"{at}[{place}]") for place, each in enumerate(value)]


def _tool(tool: Any, at: str) -> Mapping[str, Any]:
    if not isinstance(tool, Mapping):
        raise Unfit(at, f"expected a tool, found {found(tool)}")
    if "function" in tool or not isinstance(tool.get("name"), str):
        return tool
    fields = {name: tool[name] for name in ("name", "description", "parameters", "strict") if name in tool}
    if "parameters" not in fields and isinstance(tool.get("input_schema"), Mapping):
        fields["parameters"] = tool["input_schema"]
    return {"type": "function", "function": fields}


def _messages(value: Any, at: str) -> list[Message]:
    """Return the messages that one is, at least one: the results of several tools can be parts of one."""
    if not isinstance(value, Mapping):
        raise Unfit(at, f"expected a message, found {found(value)}")
    role = value.get("role", value.get("type"))
    role = _OTHER_ROLES.get(role, role) if isinstance(role, str) else role
    if role not in _ROLES:
        raise Unfit(f"{at}.role", f"expected one of {', '.join(_ROLES)}, found {found(role)}")
    if isinstance(value.get("parts"), list):
        return _of_parts(role, value["parts"], f"{at}.parts")
    read: dict[str, Any] = {"role": role, "content": _content(value.get("content"), role, f"{at}.content")}
    read |= {name: value[name] for name in _KEPT if value.get(name) not in (None, [])}
    if "tool_calls" in read:
        read["tool_calls"] = _calls(read["tool_calls"], f"{at}.tool_calls")
    for name in ("tool_call_id", "name", "refusal"):
        if not isinstance(read.get(name, ""), str):
            raise Unfit(f"{at}.{name}", f"expected a text, found {found(read[name])}")
    return [read]


def _content(content: Any, role: str, at: str) -> Any:
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list):
        for place, part in enumerate(content):
            if not isinstance(part, Mapping):
                raise Unfit(f"{at}[{place}]", f"expected a part of a message, found {found(part)}")
        return content
    if role == "tool":  # a result that was not written as a text
        return to_json(content).decode("utf-8", "surrogatepass")
    raise Unfit(at, f"expected a text or a list of parts, found {found(content)}")


def _calls(calls: Any, at: str) -> list[Mapping[str, Any]]:
    if not isinstance(calls, list):
        raise Unfit(at, f"expected a list of tool calls, found {found(calls)}")
    read = []
    for place, call in enumerate(calls):
        if not isinstance(call, Mapping):
            raise Unfit(f"{at}[{place}]", f"expected a tool call, found {found(call)}")
        if call.get("type") == "custom" and isinstance(call.get("custom"), Mapping):
            read.append(call)
            continue
        function = call.get("function", call)  # LangChain has no envelope
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(name, str) or not name:
            raise Unfit(f"{at}[{place}].function.name", f"expected the name of a tool, found {found(name)}")
        arguments = function.get("arguments", function.get("args", {}))
        read.append(_call(call.get("id"), name, arguments))
    return read


def _call(name: Any, tool: str, arguments: Any) -> Mapping[str, Any]:
    """Return a tool call. Its arguments are a text of JSON in the API, and often an object in files."""
    written = arguments if isinstance(arguments, str) else json.dumps({} if arguments is None else arguments)
    call = {"type": "function", "function": {"name": tool, "arguments": written}}
    return {"id": name, **call} if isinstance(name, str) else call


def _of_parts(role: str, parts: Sequence[Any], at: str) -> list[Message]:
    """Return the messages of one in OpenTelemetry's form."""
    content: list[Mapping[str, Any]] = []
    calls: list[Mapping[str, Any]] = []
    thoughts: list[str] = []
    results: list[Message] = []
    for place, part in enumerate(parts):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "text" and isinstance(part.get("content"), str):
            content.append({"type": "text", "text": part["content"]})
        elif kind == "reasoning" and isinstance(part.get("content"), str):
            thoughts.append(part["content"])
        elif kind == "tool_call" and isinstance(part.get("name"), str):
            calls.append(_call(part.get("id"), part["name"], part.get("arguments")))
        elif kind == "tool_call_response":
            result = part.get("response", part.get("result"))
            text = result if isinstance(result, str) else to_json(result).decode("utf-8", "surrogatepass")
            results.append({"role": "tool", "tool_call_id": str(part.get("id") or ""), "content": text})
        elif kind == "uri" and part.get("modality") == "image":
            content.append({"type": "image_url", "image_url": {"url": part.get("uri")}})
        elif isinstance(kind, str):
            content.append(part)  # a picture, sound or a file: capture keeps a reference, and the policy is not asked
        else:
            raise Unfit(f"{at}[{place}]", f"expected a part with a type and its content, found {found(part)}")
    if results and not (content or calls):
        return results
    texts = [part["text"] for part in content if part.get("type") == "text"]
    said: Any = "".join(texts) if len(texts) == len(content) else content
    read: dict[str, Any] = {"role": role, "content": said or None}
    if calls:
        read["tool_calls"] = calls
    if thoughts:
        read["reasoning_content"] = "\n".join(thoughts)
    return [read, *results]
