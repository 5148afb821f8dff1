"""Answers that quote what agents, users and models said."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Response
from pydantic_core import PydanticSerializationError, to_json


def quoted(value: dict[str, Any]) -> Response:
    """Return an answer with this JSON. A conversation may hold halves of surrogate pairs, for which UTF-8 has no bytes:
    then all that is not ASCII is escaped."""
    try:
        body = to_json(value)
    except PydanticSerializationError:
        body = json.dumps(value).encode()
    return Response(body, media_type="application/json")
