"""Cases of an evaluation, made of imported conversations: what was asked, and the answer as the right one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from slipstream.datasets.imports.conversation import Conversation, ImportedCall, Refused, Skipped
from slipstream.datasets.imports.judgements import chosen
from slipstream.trajectory import message_text, message_tool_calls

_LONGEST_ID = 256
_ROLES = ("system", "developer", "user", "assistant", "tool")


def cases(
    read: Iterable[Conversation | Refused | Skipped], score: str | None
) -> Iterator[dict[str, Any] | Refused | Skipped]:
    """Yield a case for each answer, as a line of a file of `evaluation.suites`. Answers that somebody disliked are left
    out: they are not right.

    Args:
        score: name of the judgements that count.
    """
    for number, one in enumerate(read, start=1):
        if not isinstance(one, Conversation):
            yield one
            continue
        name = one.name or f"{one.place.file}:{one.place.line}"
        for place, task in enumerate(one.tasks):
            for position, call in enumerate(task.calls):
                judged = chosen([*call.scores, *(task.scores if call is task.calls[-1] else ())], score)
                if judged is not None and judged.thumbs == "down":
                    continue
                if any(message.get("role") not in _ROLES for message in call.request["messages"]):
                    yield Refused(call.place, "role", f"expected one of {', '.join(_ROLES)}")
                    continue
                id_ = f"{number}-{place}-{position}-{name}"[:_LONGEST_ID]
                session = (one.session or name)[:_LONGEST_ID]
                yield {"id": id_, "session": session, **_asked(call)}


def _asked(call: ImportedCall) -> dict[str, Any]:
    case: dict[str, Any] = {"messages": list(call.request["messages"])}
    if call.request.get("tools"):
        case["tools"] = call.request["tools"]
    if text := message_text(call.answer):
        case["reference"] = text
    if calls := message_tool_calls(call.answer):
        case["metadata"] = {"tool_calls": list(calls)}
    return case
