"""Files of TLS towards a server that the sidecar asks."""

from __future__ import annotations

from pathlib import Path

from slipstream.http.connect import ClientTls


def tls_of(ca: Path | None, certificate: Path | None, key: Path | None) -> ClientTls | None:
    """The files of TLS; None for the system's authorities and no certificate."""
    return None if ca is None and certificate is None else ClientTls(ca, certificate, key)


def check_pair(certificate: Path | None, key: Path | None) -> None:
    """
    Raises:
        ValueError: there is one of a certificate and its key.
    """
    if (certificate is None) != (key is None):
        raise ValueError("certificate and key, both or neither")


def check_tls(name: str, url: str, tls: ClientTls | None) -> None:
    """Check that the files can be used for an address.

    Args:
        name: of the key that has the address.

    Raises:
        ValueError: they cannot.
    """
    if tls is None:
        return
    if not url.startswith("https:"):
        raise ValueError(f"a {name} that begins with https://, as ca or certificate is given")
    try:
        tls.context()
    except OSError as error:
        raise ValueError(f"files in PEM as ca, certificate and key that can be used ({error})") from None
