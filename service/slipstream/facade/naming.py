"""The policy model's name: a stable one for those who ask through the sidecar, the Explorer's own behind it.

The Explorer calls its model by the path that it was loaded from, which another version or another machine changes.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from slipstream.dialects.body import Unreadable, parse_json
from slipstream.dialects.form import Dialect
from slipstream.dialects.messages.models import model_list
from slipstream.dialects.translators import TRANSLATORS
from slipstream.facade.chat import Whole, error_message

_MODEL = re.compile(rb'("model"\s*:\s*)"(?:[^"\\]|\\.)*+"')
"""The field; what looks like it inside of a text has its quotation marks escaped."""

_LONGEST_LINE = 64 * 1024
"""Bytes of a line that are kept back until its end is here; the field is at the beginning of each event."""


def renamed(body: bytes, name: str) -> bytes:
    """A chat completion, or one event of a streamed one, under another model's name."""
    return _MODEL.sub(lambda match: match[1] + json.dumps(name).encode(), body, count=1)


class RenamedStream:
    """The pieces of a streamed answer with the model's name in each event replaced, as they arrive."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._line = b""

    def feed(self, piece: bytes) -> bytes:
        """Return what can be passed on now: whole lines."""
        if self._name is None:
            return piece
        *lines, self._line = (self._line + piece).split(b"\n")
        if len(self._line) > _LONGEST_LINE:
            lines, self._line = [*lines, self._line], b""
            return b"\n".join(renamed(line, self._name) for line in lines)
        return b"".join(renamed(line, self._name) + b"\n" for line in lines)

    def rest(self) -> bytes:
        """Return the rest that was kept back, at the end."""
        line, self._line = self._line, b""
        return line if self._name is None else renamed(line, self._name)


def renamed_models(answer: Whole, name: str, model: str | None) -> Whole:
    """The Explorer's list of models with the policy under this name.

    Args:
        model: the policy's name at the Explorer; None for the first of the list.
    """
    listed = _listed(answer)
    if listed is None:
        return answer
    models = listed["data"]
    at = next((index for index, one in enumerate(models) if one.get("id") == model), 0)
    policy = (
        {field: name if field in ("id", "root") else value for field, value in models[at].items()} if models else {}
    )
    data = [policy if index == at else one for index, one in enumerate(models)]
    return replace(answer, body=json.dumps({**listed, "data": data}).encode())


def in_anthropics_form(answer: Whole) -> Whole:
    """A list of models, or the error in its place, as Anthropic's API has it."""
    listed = _listed(answer)
    if listed is not None:
        return replace(answer, body=json.dumps(model_list(listed["data"])).encode())
    try:
        said = parse_json(answer.body)
    except Unreadable:
        said = None
    status = 502 if answer.status == 200 else answer.status
    body = TRANSLATORS[Dialect.MESSAGES].error(status, error_message(said), None, None)
    return Whole(status, [(b"content-type", b"application/json")], json.dumps(body).encode())


def _listed(answer: Whole) -> dict[str, Any] | None:
    """The list as OpenAI's API has it, `data` with an object for each model; None where the answer is none."""
    try:
        listed = parse_json(answer.body)
    except Unreadable:
        return None
    models = listed.get("data") if isinstance(listed, dict) else None
    if answer.status != 200 or not isinstance(models, list) or not all(isinstance(one, dict) for one in models):
        return None
    return dict(listed)
