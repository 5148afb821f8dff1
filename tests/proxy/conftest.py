from __future__ import annotations

import os
import ssl
import subprocess
from collections.abc import Callable

import pytest


class ServerContext(ssl.SSLContext):
    certificate: str


@pytest.fixture(scope="session")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ServerContext]:
    """Makes a TLS server context for a name (`DNS:x` or `IP:x`) whose certificate nobody signed but itself;
    `certificate` is its file."""

    def make(name: str) -> ServerContext:
        folder = tmp_path_factory.mktemp("tls")
        key, certificate = folder / "key.pem", folder / "certificate.pem"
        subprocess.run(
            f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {key} -out {certificate} "
            f"-days 2 -subj /CN=production -addext subjectAltName={name}",
            shell=True,
            check=True,
            capture_output=True,
        )
        context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        context.certificate = str(certificate)
        return context

    return make


@pytest.fixture(scope="session")
def self_signed(certified: Callable[[str], ServerContext]) -> ServerContext:
    return certified("IP:127.0.0.1")


@pytest.fixture(autouse=True)
def no_proxies_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
