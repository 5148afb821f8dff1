"""Tools written as text, by the Hermes convention (github.com/NousResearch/Hermes-Function-Calling).

The model writes `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`. This is how a conversation with tools is
put to a model whose chat template knows none, and how it is written for a trainer that knows none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

TOOL_CALL = "<tool_call>"
_TOOLS_TEXT = """You can call functions. Their signatures are JSON within <tools></tools>:
<tools>
{tools}
</tools>
To call a function, answer with its name and arguments as JSON within <tool_call></tool_call>:
<tool_call>
{{"name": <function name>, "arguments": <object>}}
</tool_call>"""


def rendered(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the conversation with only the roles system, user and assistant, and text.

    Args:
        messages: with a text each, roles system, user, assistant and tool; the arguments of `tool_calls` as an object.
        tools: as in OpenAI's chat completions; they are put at the end of the system message.
    """
    texts = [_text(message) for message in messages]
    if tools:
        signatures = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
        text = _TOOLS_TEXT.format(tools=signatures)
        if texts and texts[0]["role"] == "system":
            texts[0] = {"role": "system", "content": f"{texts[0]['content']}\n\n{text}"}
        else:
            texts.insert(0, {"role": "system", "content": text})
    return texts


def _text(message: Mapping[str, Any]) -> dict[str, str]:
    content = message["content"]
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{content}\n</tool_response>"}
    calls = [
        f"{TOOL_CALL}\n{json.dumps(_call(call['function']), ensure_ascii=False)}\n</tool_call>"
        for call in message.get("tool_calls", ())
    ]
    return {"role": message["role"], "content": "\n".join(filter(None, [content, *calls]))}


def _call(function: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": function["name"], "arguments": function["arguments"]}
