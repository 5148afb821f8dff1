"""The section `listen` of sidecar.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from slipstream.config.file_path import FilePath
from slipstream.settings.section import Section


class ListenTls(Section):
    """Files of TLS towards agents, in PEM. With `client_ca` clients need a certificate of one of these authorities."""

    certificate: Path
    key: Path
    client_ca: FilePath = None


class Listen(Section):
    """Address on which the sidecar listens; written `host:port`, an IPv6 host in brackets, or with its parts."""

    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8100, ge=0, le=65535)
    tls: ListenTls | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """Return its URL for a program on the same machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - not bound here
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return value
        host, _, port = str(value).rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if not host or not port.isdecimal() or (":" in host and not bracketed):
            raise ValueError('host:port, such as "127.0.0.1:8100" or "[::1]:8100"')
        return {"host": host[1:-1] if bracketed else host, "port": port}
