"""Cases of a suite: read from a JSONL file, one object a line; errors name the file, the line and the field."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from slipstream.errors import SlipstreamError
from slipstream.http.body import Body
from slipstream.http.validation import describe

_MOST_CASES = 10_000
_MOST_BYTES = 16 * 1024**2
"""The cases are in memory while they are asked."""

_MOST_PROBLEMS = 10
"""Lines of an error: whoever mends ten faults looks again."""


class CasesError(SlipstreamError):
    """The cases of a suite cannot be read; names the file, the line and the field."""


@dataclass(frozen=True, slots=True)
class AskedCase:
    """A case with what it asks.

    Attributes:
        name: its id.
        key: names what is asked and what is known of the right answer, so that the same case has the same key.
        session: cases of one session count as one unit.
        request: fields of a chat completion.
        metadata: as of a task: `reference` is the right answer.
        call: the held-out call, by its number; None for a case of a file.
    """

    name: str
    key: str
    session: str
    request: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    call: int | None = None


class _Message(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)

    role: Annotated[str, Field(pattern="^(system|developer|user|assistant|tool)$")]


class _Line(Body):
    """One line of the file."""

    id: Annotated[str, Field(min_length=1, max_length=256)]
    messages: Annotated[list[_Message], Field(min_length=1)] | None = None
    prompt: Annotated[str, Field(min_length=1)] | None = None
    reference: JsonValue = None
    session: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    tools: Annotated[list[dict[str, JsonValue]], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _asks_one_thing(self) -> Self:
        self.has_one_of("messages", "prompt")
        return self


def read_cases(path: Path) -> list[AskedCase]:
    """Read the cases of a file. Blank lines are left out.

    Raises:
        CasesError: the file cannot be read, is too large, has no case, or has lines that are none.
    """
    try:
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise CasesError(f"{path}: expected {_MOST_BYTES} bytes at most, found {size}")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CasesError(f"{path}: expected a file that can be read; {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CasesError(f"{path}: expected UTF-8; byte {error.start} is none") from error
    found: list[AskedCase] = []
    problems: list[str] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            case = _case(line)
            if case.name in lines:
                raise CasesError(f"id: expected one of its own, found {case.name!r}, which line {lines[case.name]} has")
        except CasesError as error:
            problems.append(f"{path}: line {number}: {error}")
        else:
            lines[case.name] = number
            found.append(case)
    if problems:
        more = len(problems) - _MOST_PROBLEMS
        raise CasesError("\n".join(problems[:_MOST_PROBLEMS] + ([f"and {more} lines more"] if more > 0 else [])))
    if not 0 < len(found) <= _MOST_CASES:
        raise CasesError(f"{path}: expected from 1 to {_MOST_CASES} cases, found {len(found)}")
    return found


def _case(line: str) -> AskedCase:
    try:
        read = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CasesError(f"expected JSON: {error}") from error
    if not isinstance(read, dict):
        raise CasesError(f"expected a JSON object, found {type(read).__name__}")
    try:
        case = _Line.model_validate(read)
    except ValidationError as error:
        raise CasesError(describe(error.errors(), _Line)) from error
    request: dict[str, Any] = {"messages": read.get("messages") or [{"role": "user", "content": case.prompt}]}
    if case.tools is not None:
        request["tools"] = case.tools
    metadata = {**case.metadata} if case.reference is None else {**case.metadata, "reference": case.reference}
    asked = json.dumps([case.id, request, metadata], sort_keys=True).encode()
    key = hashlib.sha256(asked).hexdigest()[:32]
    return AskedCase(case.id, key, case.session or f"\0{case.id}", request, metadata)
