"""Choose the tracer by the configuration: one that makes nothing, or OpenTelemetry's, which is imported only then."""

from __future__ import annotations

from slipstream.errors import ConfigError
from slipstream.metrics import Metrics
from slipstream.settings.otel import Otel
from slipstream.tracing.tracer import NO_TRACER, Tracer


def tracer_of(settings: Otel, metrics: Metrics) -> Tracer:
    """Return the tracer of this process. It may start a thread, so a process that forks has none.

    Raises:
        ConfigError: the extra `[otel]` is not installed.
    """
    if settings.endpoint is None:
        return NO_TRACER
    try:
        from slipstream.tracing.otlp import OtlpTracer
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"otel.endpoint: needs the package {error.name}, which is not installed; the extra [otel] brings it, in an "
            "image --build-arg EXTRAS=otel"
        ) from error
    return OtlpTracer(settings, metrics)
