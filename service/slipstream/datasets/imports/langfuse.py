"""Exports of Langfuse: observations (and scores, and traces) of its page, its API and its blob storage.

Fields have the names of the API (`traceId`) or of the blob storage (`trace_id`). A generation is a call, a trace a
task, a session a session. Files of scores and traces are joined with the observations if they are read together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slipstream.datasets.imports import chat
from slipstream.datasets.imports.conversation import (
    Conversation,
    ImportedCall,
    Options,
    Place,
    Refused,
    Skipped,
    Unfit,
    at_path,
    found,
    session_name,
)
from slipstream.datasets.imports.files import Extent, RecordFile
from slipstream.datasets.imports.grouping import Mention, Noted, Origin, conversations
from slipstream.datasets.imports.judgements import scores
from slipstream.datasets.imports.times import seconds

_CALL = "GENERATION"

_PARAMETERS = (
    "temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "stop", "presence_penalty",
    "frequency_penalty", "n", "response_format", "tool_choice", "parallel_tool_calls", "reasoning_effort",
)  # fmt: skip
"""Fields of `modelParameters` that are those of the chat completions API."""


def read(files: Sequence[RecordFile], options: Options) -> Iterator[Conversation | Refused | Skipped]:
    """Yield the conversations of files that are read together.

    Raises:
        ImportFileError: a file cannot be read.
    """
    return conversations(files, _Langfuse(options))


class _Langfuse:
    def __init__(self, options: Options) -> None:
        self._options = options

    def note(self, record: dict[str, Any], at: tuple[int, Extent], noted: Noted) -> None:
        if isinstance(record.get("type"), str) and "id" in record:
            self._note_observation(record, at, noted)
        elif "name" in record and "value" in record and record.get("type") is None:
            self._note_score(record, noted)
        elif isinstance(record.get("id"), str):  # a trace
            self._note_session(record, record["id"], noted)
            for name, value in _flat_scores(record):
                noted.scores.setdefault(record["id"], []).extend(scores(name, value, None))
            noted.skipped += 1
        else:
            raise Unfit("type", f"expected an observation with an id and a type, found {found(record.get('type'))}")

    def _note_observation(self, record: Mapping[str, Any], at: tuple[int, Extent], noted: Noted) -> None:
        name, trace = _text(record, "id"), _get(record, "traceId")
        task = trace if isinstance(trace, str) and trace else name
        self._note_session(record, task, noted)
        if record["type"].upper() != _CALL:
            noted.skipped += 1
            return
        began = seconds(_get(record, "startTime"), "startTime")
        noted.add(Mention(task, name, began or 0.0, Origin(*at, 0)))

    def _note_session(self, record: Mapping[str, Any], task: str, noted: Noted) -> None:
        field = self._options.session_field
        if field is None:
            named = session_name(_get(record, "sessionId"), "sessionId")
        else:
            named = session_name(at_path(record, field), field)
        if named is not None:
            noted.sessions.setdefault(task, named)

    def _note_score(self, record: Mapping[str, Any], noted: Noted) -> None:
        subject = record.get("subject")
        subject = subject if isinstance(subject, Mapping) and subject.get("kind") in ("observation", "trace") else {}
        about = (
            _get(record, "observationId") or _get(record, "traceId") or subject.get("id") or _get(subject, "traceId")
        )
        if not isinstance(about, str) or not about:
            noted.skipped += 1  # of a session, or of a run of an experiment
            return
        value = record["value"] if record["value"] is not None else _get(record, "stringValue")
        if _get(record, "dataType") == "BOOLEAN" and value in (0, 1):
            value = bool(value)
        noted.scores.setdefault(about, []).extend(scores(_text(record, "name"), value, record.get("comment")))

    def call(self, record: dict[str, Any], mention: Mention, place: Place, attached: Sequence[Any]) -> ImportedCall:
        asked = chat.parsed(record.get("input"))
        request: dict[str, Any] = {}
        parameters = chat.parsed(_get(record, "modelParameters"))
        if isinstance(parameters, Mapping):
            request |= {name: parameters[name] for name in _PARAMETERS if parameters.get(name) is not None}
        tools = parameters.get("tools") if isinstance(parameters, Mapping) else None
        if isinstance(asked, Mapping) and "messages" in asked:
            tools = asked.get("tools", tools)
            asked = asked["messages"]
        model = record.get("model") or _get(record, "providedModelName")
        if isinstance(model, str) and model:
            request["model"] = model
        if read_tools := chat.tools(tools, "input.tools"):
            request["tools"] = read_tools
        request["messages"] = chat.messages(asked, "input")
        began, ended = seconds(_get(record, "startTime"), "startTime"), seconds(_get(record, "endTime"), "endTime")
        given = [score for name, value in _flat_scores(record) for score in scores(name, value, None)]
        if (column := self._options.score) is not None and not given:  # the page's export has a column for each name
            given = list(scores(column, record.get(column), None))
        return ImportedCall(
            name=mention.name,
            request=request,
            answer=chat.answer(record.get("output"), "output"),
            place=place,
            at=began,
            latency=max(0.0, ended - began) if began is not None and ended is not None else 0.0,
            usage=_usage(record),
            scores=given,
        )


def _flat_scores(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the scores that stand in a record itself: by their names, or in a list of whole scores."""
    given = record.get("scores")
    if isinstance(given, Mapping):
        yield from given.items()
    elif isinstance(given, list):
        for each in given:
            if isinstance(each, Mapping) and isinstance(each.get("name"), str):
                yield each["name"], each.get("value")


def _usage(record: Mapping[str, Any]) -> dict[str, int] | None:
    """Return the tokens of a call in the API's words: Langfuse has them as `usageDetails`, older ones as `usage`."""
    details = chat.parsed(_get(record, "usageDetails")) or chat.parsed(record.get("usage"))
    if not isinstance(details, Mapping):
        return None
    asked, given = (_count(details.get(name)) for name in ("input", "output"))
    if asked is None or given is None:
        return None
    return {"prompt_tokens": asked, "completion_tokens": given, "total_tokens": asked + given}


def _count(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 16:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _get(record: Mapping[str, Any], name: str) -> Any:
    """Return a field by its name in the API, or in the blob storage (`trace_id` for `traceId`)."""
    if name in record:
        return record[name]
    return record.get("".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name))


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str) or not value:
        raise Unfit(name, f"expected a text, found {found(value)}")
    return value
