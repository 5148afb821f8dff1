"""Certificates of an authority that a test makes."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass
class Authority:
    """An authority, the files of a server's certificate that it has signed, and clients that trust it."""

    ca: trustme.CA
    folder: Path

    @property
    def file(self) -> Path:
        path, new = self.folder / "ca.pem", self.folder / "ca.pem.new"
        self.ca.cert_pem.write_to_path(str(new))
        new.replace(path)  # a sidecar may be reading it
        return path

    def issue(self, name: str = "server", ca: trustme.CA | None = None) -> dict[str, str]:
        """Write a certificate for 127.0.0.1 and its key, over those of the same name."""
        made = (ca or self.ca).issue_cert("127.0.0.1", common_name=name)
        key, certificate = self.folder / f"{name}.key", self.folder / f"{name}.pem"
        made.private_key_pem.write_to_path(str(key))
        certificate.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        return {"certificate": str(certificate), "key": str(key)}

    def client(self, certificate: dict[str, str] | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.file))
        if certificate is not None:
            context.load_cert_chain(certificate["certificate"], certificate["key"])
        return context
