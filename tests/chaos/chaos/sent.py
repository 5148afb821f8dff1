"""Production's log read again: the bytes that it gave, and whether they are a whole answer.

It is written apart from the service's own reading of ends (`slipstream.http.remainder`), because it checks that too.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_LAST_EVENT = re.compile(
    rb"^(?:data: ?\[DONE\]|event: ?(?:message_stop|response\.(?:completed|failed|incomplete))\r?\ndata:[^\r\n]*[\r\n])",
    re.MULTILINE,
)
"""The last event of chats, of Anthropic's messages and of OpenAI's responses, at the beginning of a line. A text of a
model has no line breaks in JSON, so none looks like it."""
_EVENT = re.compile(rb"^data: ?(\{[^\r\n]*\})\r?\n", re.MULTILINE)
_DECODER = json.JSONDecoder()


@dataclass(slots=True)
class Sent:
    """One answer as production gave it.

    Attributes:
        status: of HTTP.
        body: what production sent of it, or was about to send when it was killed.
        ended: production came to the end of the body, which is the last chunk of its framing.
    """

    prompt: str
    status: int
    body: bytearray = field(default_factory=bytearray)
    ended: bool = False

    @property
    def whole(self) -> bool:
        """True if a caller who leaves now, or is cut off, has had a whole answer.

        That is so before its framing ends: a client leaves with the last event of a stream, and a production that
        never ends, or is killed there, has said everything that it had to say.
        """
        return self.ended or holds_an_answer(bytes(self.body))


def answers_sent(log: Path) -> dict[str, Sent]:
    """Return production's answers by their numbers. A last line that was written in part is left out."""
    sent: dict[str, Sent] = {}
    for line in log.read_bytes().split(b"\n")[:-1]:
        step = json.loads(line)
        if "prompt" in step:
            sent[step["answer"]] = Sent(step["prompt"], step["status"])
        elif "piece" in step:
            sent[step["answer"]].body += step["piece"].encode("latin-1")
        elif "whole" in step:
            sent[step["answer"]].ended = True
    return sent


def holds_an_answer(body: bytes) -> bool:
    """Return whether a body holds a whole answer with one choice, even if more of the body is still to come.

    That is a completion that has finished, or a stream that has its last event, or the event in which its choice
    finished.
    """
    if body.startswith(b"{"):
        return _has_finished(body)
    return _LAST_EVENT.search(body) is not None or any(map(_has_finished, _EVENT.findall(body)))


def _has_finished(text: bytes) -> bool:
    """Return whether a completion, or a chunk of one, says that its choice has finished; more may follow it."""
    try:
        said: dict[str, Any] = _DECODER.raw_decode(text.decode(errors="replace"))[0]
    except (ValueError, RecursionError):  # cut; or poison, which is not read
        return False
    return any(choice.get("finish_reason") for choice in said.get("choices", ()))
