"""The section `otel` of sidecar.yaml: traces that go to an OpenTelemetry collector."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, SecretStr, field_validator

from slipstream.config.units import PositiveDuration
from slipstream.settings.section import Section
from slipstream.settings.types import BaseUrl, EmptyIsNone

_PATH = "/v1/traces"
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\x20-\x7e]*")


class Otel(Section):
    """Traces by OTLP over HTTP: `docs/tracing.md`. Without an `endpoint` none are made.

    `headers`: of each request to the collector, such as its key; one whose value is empty is not sent. `ratio`: the
    share of what is traced where no caller has decided. `timeout`: of one export, its retries included.
    """

    endpoint: Annotated[BaseUrl | None, EmptyIsNone] = None
    headers: Mapping[str, SecretStr] = Field(default_factory=dict)
    service_name: str = Field(default="slipstream", min_length=1, max_length=255)
    ratio: float = Field(default=1.0, ge=0, le=1)
    timeout: PositiveDuration = 10.0

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, headers: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        for name, value in headers.items():
            if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value.get_secret_value()):
                raise ValueError("names of HTTP headers with values of printable ASCII characters")
        return headers

    @property
    def traces_url(self) -> str | None:
        """Return the URL that spans are posted to; None if none are made."""
        if self.endpoint is None or self.endpoint.endswith(_PATH):
            return self.endpoint
        return self.endpoint + _PATH
