from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest


class ServerContext(ssl.SSLContext):
    certificate: str


@pytest.fixture(scope="session")
def self_signed(tmp_path_factory: pytest.TempPathFactory) -> ServerContext:
    """A TLS server context for 127.0.0.1 whose certificate nobody signed but itself; `certificate` is its file."""
    folder: Path = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {key} -out {certificate} "
        "-days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1",
        shell=True,
        check=True,
        capture_output=True,
    )
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.certificate = str(certificate)
    return context
