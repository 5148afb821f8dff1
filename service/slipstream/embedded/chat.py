"""From chat messages to prompt tokens, and from response text to an answer with tool calls.

Tools follow the Hermes convention (`slipstream/hermes.py`). A model whose chat template knows tools renders them
itself; for the others, as SmolLM2, the same convention is written into the system message.
"""

from __future__ import annotations

import inspect
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from transformers import PreTrainedTokenizerBase

from slipstream.dialects import hermes

RESERVED = frozenset(inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters) | {"messages"}
"""Names that no `chat_template_kwargs` may have: they say how, and from what, the prompt is made."""
_CALLS = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)


class TextPart(BaseModel):
    type: Literal["text"]
    text: str


def _as_parts(content: Any) -> Any:
    """OpenAI lets a text stand for a list of one part."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


class FunctionCall(BaseModel):
    name: str
    arguments: str = "{}"


class ToolCall(BaseModel):
    id: str = Field(default_factory=lambda: f"call_{uuid.uuid4().hex[:24]}")
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[list[TextPart] | None, BeforeValidator(_as_parts)] = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None

    @property
    def thoughts(self) -> str | None:
        """The thoughts of an assistant's message, by the newer or the older name of the field in vLLM."""
        if self.role != "assistant":
            return None
        return self.reasoning_content if self.reasoning is None else self.reasoning

    @property
    def text(self) -> str:
        """The content as one text: vLLM puts a newline between parts too, and so do the translators of dialects."""
        return "\n".join(part.text for part in self.content or [])


class Function(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(min_length=1)]


class Tool(BaseModel):
    type: Literal["function"]
    function: Function


def prompt_ids(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Message],
    tools: Sequence[Tool],
    variables: Mapping[str, Any] | None = None,
) -> list[int]:
    """The prompt up to where the assistant's answer begins, by the model's chat template.

    Args:
        variables: more of what the template may ask for, as `enable_thinking`; none named as in `RESERVED`.

    Raises:
        jinja2.TemplateError: the template refuses these messages (roles that do not alternate, say).
        TypeError, ValueError: the tokenizer cannot read them (half of a surrogate pair, say).
    """
    signatures: list[Any] = [tool.model_dump() for tool in tools]
    native = _native(messages)
    ids: Any = tokenizer.apply_chat_template(
        native if _knows_tools(tokenizer, signatures) else hermes.rendered(native, signatures),
        tools=signatures or None,
        add_generation_prompt=True,
        return_dict=False,
        **(variables or {}),
    )
    return list(ids)


def parse_tool_calls(text: str) -> tuple[str | None, list[ToolCall]]:
    """Splits a response into what the assistant says before its first call, and its calls.

    A response with one call that cannot be read is text as a whole: half of what the model meant is not carried out.
    """
    calls = []
    for written in _CALLS.findall(text):
        try:
            call = json.loads(written)
            json.dumps(call, ensure_ascii=False).encode()  # half of a surrogate pair can be escaped, and not be sent
        except (ValueError, RecursionError):
            return text, []
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            return text, []
        arguments = call.get("arguments", {})
        if not isinstance(arguments, dict):
            return text, []
        calls.append(
            ToolCall(function=FunctionCall(name=call["name"], arguments=json.dumps(arguments, ensure_ascii=False)))
        )
    return (text.partition(hermes.TOOL_CALL)[0].strip() or None, calls) if calls else (text, [])


def answer_text(message: Message) -> str:
    """Return what the model writes to give this answer: its text, and its calls as `parse_tool_calls` reads them."""
    return hermes.rendered(_native([message]), ())[0]["content"]


def _knows_tools(tokenizer: PreTrainedTokenizerBase, signatures: list[Any]) -> bool:
    """Return whether the template knows tools that is taken for these: a tokenizer may have one for tools alone."""
    return re.search(r"\btools\b", tokenizer.get_chat_template(tools=signatures or None)) is not None


def _native(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """For a template that renders tools: roles and calls as they are, arguments as an object."""
    rendered = []
    for message in messages:
        fields: dict[str, Any] = {"role": _role(message), "content": message.text}
        if message.tool_calls:
            fields["tool_calls"] = [
                {"type": "function", "id": call.id, "function": _call(call)} for call in message.tool_calls
            ]
        if message.tool_call_id:
            fields["tool_call_id"] = message.tool_call_id
        if message.thoughts is not None:  # under both names, as vLLM: the template decides what is read again
            fields["reasoning"] = fields["reasoning_content"] = message.thoughts
        rendered.append(fields)
    return rendered


def _role(message: Message) -> str:
    return "system" if message.role == "developer" else message.role  # OpenAI's newer name of the same


def _call(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = json.loads(call.function.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = call.function.arguments  # a model may have written it so; it goes back as it came
    return {"name": call.function.name, "arguments": arguments}
