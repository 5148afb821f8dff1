"""A collector of traces: takes OTLP over HTTP, and decodes it by OpenTelemetry's own protobuf definitions."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


@dataclass(frozen=True)
class CollectedSpan:
    """A span as it came; times in seconds, ids in hexadecimal, `error`: its status says so."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    started_at: float
    ended_at: float
    error: bool
    links: list[str]
    attributes: dict[str, Any]
    resource: dict[str, Any]


class Collector:
    """Takes spans.

    Attributes:
        spans: those that came.
        headers: of the last request.
        said: all bytes that came, decompressed.
    """

    def __init__(self) -> None:
        self.spans: list[CollectedSpan] = []
        self.headers: dict[str, str] = {}
        self.said = b""

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/traces", self._take, methods=["POST"])])

    def named(self, name: str, **attributes: Any) -> list[CollectedSpan]:
        """The spans of this name with these attributes of `slipstream.`."""
        wanted = {f"slipstream.{key}": value for key, value in attributes.items()}
        return [one for one in self.spans if one.name == name and wanted.items() <= one.attributes.items()]

    async def _take(self, request: Request) -> Response:
        self.headers = dict(request.headers)
        body = gzip.decompress(await request.body())
        self.said += body
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _values(of_resource.resource.attributes)
            for scope in of_resource.scope_spans:
                for span in scope.spans:
                    self.spans.append(
                        CollectedSpan(
                            span.name,
                            span.kind,
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            span.start_time_unix_nano / 1e9,
                            span.end_time_unix_nano / 1e9,
                            span.status.code == 2,
                            [link.span_id.hex() for link in span.links],
                            _values(span.attributes),
                            resource,
                        )
                    )
        return Response(b"", media_type="application/x-protobuf")


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)
