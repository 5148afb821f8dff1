"""The spans of calls: made of the copies that the proxy's workers send, in the thread that packs them.

A call whose agent must not be captured, by a header, its key or `"store": false`, gets none.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import structlog

from slipstream.capture.headers import NAMES, SILENT, read_headers
from slipstream.dialects.body import header_value
from slipstream.dialects.form import Dialect, dialect_of
from slipstream.dialects.usage import Figures, figures_of
from slipstream.http.encodings import Undecodable, decoded
from slipstream.memory.parsing import ParseMemory, memory_of
from slipstream.proxy.tap import Exchange
from slipstream.redaction.redactor import Redactor
from slipstream.redaction.rules import RedactionFailed
from slipstream.serving.page import PRODUCTION
from slipstream.stages.context import Context
from slipstream.tenants import qualified
from slipstream.tracing.catalogue import Attribute, SpanName
from slipstream.tracing.tracer import Past, call_key

_log = structlog.get_logger(__name__)

_PROVIDERS = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "openai.azure.com": "azure.ai.openai",
    "amazonaws.com": "aws.bedrock",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "api.mistral.ai": "mistral_ai",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.perplexity.ai": "perplexity",
    "api.cohere.com": "cohere",
    "api.x.ai": "x_ai",
}
"""OpenTelemetry's names of providers, by their hosts or the ends of these. Others are named by the dialect that they
speak, as the conventions say."""


class CallSpans:
    """Makes the spans of traced calls.

    Args:
        redactor: of names that callers give.
    """

    def __init__(self, context: Context, redactor: Redactor) -> None:
        settings = context.settings
        self._tracer = context.tracer
        self._parsing: ParseMemory = context.parsing
        self._redactor = redactor
        self._max_body = settings.capture.max_body
        lane = settings.serving.lane_url
        self._production = urlsplit(settings.production.base_url)
        self._lane = None if lane is None else urlsplit(lane)

    def make(self, exchange: Exchange, *, captured: bool) -> None:
        """Make the span of an exchange, if it is traced. Never raises.

        Args:
            captured: the call is stored.
        """
        if exchange.trace is None or not self._tracer.on:
            return
        try:
            self._make(exchange, captured)
        except Exception:  # noqa: BLE001 - a call is kept, whatever is wrong with its span
            _log.exception("span_not_made")

    def _make(self, exchange: Exchange, captured: bool) -> None:
        dialect = dialect_of(exchange.path)
        if exchange.trace is None or dialect is None:
            return
        content_type = header_value(exchange.response_headers, b"content-type").lower()
        streamed = content_type.startswith(b"text/event-stream")
        figures = self._figures(exchange, streamed=streamed)
        by = PRODUCTION if exchange.served is None else exchange.served.variant
        server = self._production if by == PRODUCTION or self._lane is None else self._lane
        session, task = self._names(exchange)
        past = Past(
            SpanName.CHAT,
            exchange.started_at,
            exchange.started_at + exchange.duration,
            {
                Attribute.OPERATION: "chat",
                Attribute.PROVIDER: _provider(server.hostname or "", dialect) if by == PRODUCTION else "slipstream",
                Attribute.REQUEST_MODEL: figures.asked_model,
                Attribute.RESPONSE_MODEL: figures.model,
                Attribute.RESPONSE_ID: figures.id,
                Attribute.FINISH_REASONS: figures.finish_reasons or None,
                Attribute.FIRST_CHUNK: exchange.first_byte_after if streamed else None,
                Attribute.INPUT_TOKENS: figures.input_tokens,
                Attribute.OUTPUT_TOKENS: figures.output_tokens,
                Attribute.CACHED_TOKENS: figures.cached_tokens,
                Attribute.CONVERSATION: session,
                Attribute.SERVER_ADDRESS: server.hostname,
                Attribute.SERVER_PORT: server.port or (443 if server.scheme == "https" else 80),
                Attribute.STATUS: exchange.status,
                Attribute.ASKED_BY: "agent",
                Attribute.DIALECT: dialect.value,
                Attribute.ANSWERED_BY: by,
                Attribute.CAPTURED: captured,
                Attribute.TENANT: exchange.tenant,
                Attribute.TASK: task,
            },
            model=figures.asked_model,
            error=_error(exchange),
        )
        key = None if figures.id is None else call_key(qualified(exchange.tenant, figures.id))
        self._tracer.call(past, exchange.trace.parent, key=key)

    def _figures(self, exchange: Exchange, *, streamed: bool) -> Figures:
        request = self._body(exchange.request_body, header_value(exchange.request_headers, b"content-encoding"), True)
        encoding = header_value(exchange.response_headers, b"content-encoding")
        answer = self._body(exchange.response_body, encoding, exchange.complete)
        with self._parsing.held_by_thread(memory_of(request or b"", answer or b"")):
            return figures_of(request, answer, streamed=streamed)

    def _body(self, body: bytes | None, encoding: bytes, whole: bool) -> bytes | None:
        if body is None:
            return None
        try:
            return decoded(body, encoding, self._max_body, whole=whole)
        except Undecodable:
            return None

    def _names(self, exchange: Exchange) -> tuple[str | None, str | None]:
        """The session and the task that the headers name, as they are stored."""
        headers = exchange.request_headers
        said = SILENT if NAMES.isdisjoint(name.lower() for name, _ in headers) else read_headers(headers)
        return self._redacted(said.session_id), self._redacted(said.task_id)

    def _redacted(self, name: str | None) -> str | None:
        try:
            return None if name is None else self._redactor.redact_id(name)
        except RedactionFailed:
            return None


def _provider(host: str, dialect: Dialect) -> str:
    for end, name in _PROVIDERS.items():
        if host == end or host.endswith("." + end):
            return name
    return "anthropic" if dialect is Dialect.MESSAGES else "openai"


def _error(exchange: Exchange) -> str | None:
    """The `error.type` of an exchange: how it broke off, or the status of an answer that is none."""
    if exchange.error is not None:
        return exchange.error
    return str(exchange.status) if exchange.status is not None and exchange.status >= 400 else None
