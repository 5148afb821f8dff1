"""Traces that are off cost nothing, and those that cannot be on say why."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry

from slipstream.errors import ConfigError
from slipstream.metrics import Metrics
from slipstream.settings.otel import Otel
from slipstream.tracing.start import tracer_of
from slipstream.tracing.tracer import NO_TRACER


@pytest.mark.slow
def test_the_library_is_imported_by_the_training_side_alone_and_only_when_on() -> None:
    code = (
        "import json, sys, slipstream.serve.app\n"
        "loaded = lambda name: any(module.startswith(name) for module in sys.modules)\n"
        "worker = loaded('opentelemetry')\n"
        "import slipstream.sidecar, slipstream.api.control\n"  # FastAPI imports the API, of which nothing is used
        "from slipstream.metrics import Metrics\n"
        "from slipstream.settings.otel import Otel\n"
        "from slipstream.tracing.start import tracer_of\n"
        "from prometheus_client import CollectorRegistry\n"
        "tracer_of(Otel(), Metrics(CollectorRegistry()))\n"
        "off = loaded('opentelemetry.sdk') or loaded('opentelemetry.exporter') or loaded('google.protobuf')\n"
        "tracer_of(Otel(endpoint='http://127.0.0.1:9'), Metrics(CollectorRegistry()))\n"
        "print(json.dumps([worker, off, loaded('opentelemetry.sdk')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [False, False, True], done.stderr


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith(("opentelemetry.sdk", "slipstream.tracing.otlp", "slipstream.tracing.export")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    metrics = Metrics(CollectorRegistry())
    with pytest.raises(
        ConfigError, match=r"otel\.endpoint: needs the package opentelemetry\..*the extra \[otel\].*EXTRAS=otel"
    ):
        tracer_of(Otel.model_validate({"endpoint": "http://127.0.0.1:4318"}), metrics)
    assert tracer_of(Otel(), metrics) is NO_TRACER
