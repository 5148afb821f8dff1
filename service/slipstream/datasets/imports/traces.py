"""Exports of traces: `phoenix` and `otel`. A span that is a call of a model is a call, a trace a task.

A session is what `session.id` (OpenInference) or `gen_ai.conversation.id` (OpenTelemetry) says of any span of a trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slipstream.datasets.imports import genai, openinference
from slipstream.datasets.imports.attributes import nested, within
from slipstream.datasets.imports.conversation import (
    Conversation,
    ImportedCall,
    Options,
    Place,
    Refused,
    Skipped,
    at_path,
    session_name,
)
from slipstream.datasets.imports.files import Extent, RecordFile
from slipstream.datasets.imports.grouping import Mention, Noted, Origin, conversations
from slipstream.datasets.imports.judgements import scores
from slipstream.datasets.imports.spans import Event, Span, log_records, spans

_SESSIONS = ("session.id", "gen_ai.conversation.id")


def read(files: Sequence[RecordFile], options: Options) -> Iterator[Conversation | Refused | Skipped]:
    """Yield the conversations of files that are read together: spans, their log records, and annotations of Phoenix.

    Raises:
        ImportFileError: a file cannot be read.
    """
    return conversations(files, _Traces(options))


class _Traces:
    def __init__(self, options: Options) -> None:
        self._sessions = _SESSIONS if options.session_field is None else (options.session_field,)

    def note(self, record: dict[str, Any], at: tuple[int, Extent], noted: Noted) -> None:
        if _is_annotation(record):
            _note_annotation(record, noted)
            return
        for part, span in enumerate(spans(record)):
            for name in self._sessions:
                if (named := session_name(_attribute(span, name), name)) is not None:
                    noted.sessions.setdefault(span.trace, named)
            for event in span.events:
                _note_evaluation(event, noted)
            if span.kind == openinference.CALL or genai.is_call(span):
                noted.add(Mention(span.trace, span.name, span.start or 0.0, Origin(*at, part)))
            else:
                noted.skipped += 1
        for part, event in enumerate(log_records(record)):
            if event.name == genai.EVALUATION:
                _note_evaluation(event, noted)
            elif event.span and event.name.startswith("gen_ai."):
                noted.attached.setdefault(event.span, []).append(Origin(*at, part))

    def call(
        self, record: dict[str, Any], mention: Mention, place: Place, attached: Sequence[tuple[dict[str, Any], int]]
    ) -> ImportedCall:
        span = spans(record)[mention.origin.part]
        if span.kind == openinference.CALL:
            return openinference.call(span, place)
        return genai.call(span, [log_records(each)[part] for each, part in attached], place)


def _attribute(span: Span, name: str) -> Any:
    found = at_path(span.attributes, name)
    return within(nested(span.attributes), *name.split(".")) if found is None else found


def _note_evaluation(event: Event, noted: Noted) -> None:
    """Note a judgement by OpenTelemetry's conventions."""
    if event.name != genai.EVALUATION or not event.span:
        return
    said = event.attributes
    value = said.get("gen_ai.evaluation.score.value")
    value = said.get("gen_ai.evaluation.score.label") if value is None else value
    name, why = said.get("gen_ai.evaluation.name"), said.get("gen_ai.evaluation.explanation")
    noted.scores.setdefault(event.span, []).extend(scores(str(name or "evaluation"), value, why))


def _is_annotation(record: Mapping[str, Any]) -> bool:
    """Return whether a record is an annotation of Phoenix: of its API, or a row of its data frame."""
    return "span_id" in record and ("result" in record or any(name.startswith("result.") for name in record))


def _note_annotation(record: Mapping[str, Any], noted: Noted) -> None:
    result = record.get("result")
    said = result if isinstance(result, Mapping) else {}
    value, label, why = (
        said.get(name, record.get(f"result.{name}")) for name in ("score", "label", "explanation")
    )  # fmt: skip
    name, about = record.get("name") or record.get("annotation_name"), str(record["span_id"])
    words = list(scores(str(name or "annotation"), label, why))
    noted.scores.setdefault(about, []).extend(words or scores(str(name or "annotation"), value, why))
