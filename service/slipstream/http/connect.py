"""Open a connection to the production model: addresses, TLS, and the HTTP proxy of the environment."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote_to_bytes, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed does not know it

import aiohappyeyeballs
from pydantic import AnyHttpUrl

from slipstream.errors import ConfigError
from slipstream.http.errors import UpstreamError

_NEXT_ADDRESS = 0.25
"""Seconds after which the name's next address is tried beside the one that has not answered (RFC 8305, section 8)."""

_LONGEST_REFUSAL = 64 * 1024
"""Bytes without a whole head that are taken for a proxy which does not speak HTTP."""

P = TypeVar("P", bound=asyncio.Protocol)

_Address = aiohappyeyeballs.AddrInfoType
"""As `socket.getaddrinfo` gives it."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """Files of TLS towards an upstream, in PEM.

    Attributes:
        ca: authorities in the place of the system's.
        certificate, key: with which this side shows who it is.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """
        Raises:
            OSError: a file cannot be used.
        """
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key, password="")  # else OpenSSL would ask on the terminal
        context.set_alpn_protocols(["http/1.1"])
        return context


class Connector:
    """Opens connections to one upstream.

    TLS certificates and host names are verified against the system's authorities (`SSL_CERT_FILE` replaces them).
    `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, in lower case too, are read as Python's urllib reads them.
    An https upstream is reached through a tunnel (CONNECT), a plain one by requests in absolute form.

    Args:
        base_url: of the upstream; its path does not matter here.
        connect_timeout: seconds for everything until the connection can be used.
        environment: the process's environment variables.
        tls: of an https upstream; without it the system's authorities, and no certificate.

    Attributes:
        absolute_form: each request must name the whole URL in place of the path.
        proxy_authorization: value of the `proxy-authorization` header to be sent with each request in absolute form.

    Raises:
        ConfigError: the environment names a proxy that cannot be used.
    """

    def __init__(
        self, base_url: str, connect_timeout: float, environment: Mapping[str, str], tls: ClientTls | None = None
    ) -> None:
        url = urlsplit(str(AnyHttpUrl(base_url)))  # by way of pydantic: all ASCII, however it was written
        self._host = url.hostname or ""
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._timeout = connect_timeout
        self._tls: ssl.SSLContext | None = None
        if url.scheme == "https":
            self._tls = (tls or ClientTls()).context()
        self._proxy = proxy_for(url.scheme, self._host, self._port, environment)
        self.absolute_form = self._proxy is not None and self._tls is None
        self.proxy_authorization = self._proxy.authorization if self._proxy and self.absolute_form else None

    async def open(self, protocol: Callable[[], P]) -> P:
        """Open a connection and hand it to a new `protocol`.

        Raises:
            UpstreamError: `connect_timeout`, or `connect`: refused, unknown host, certificate not trusted, or the proxy
                did not open a tunnel.
        """
        way = f" through the HTTP proxy {self._proxy.address}" if self._proxy else ""
        try:
            async with asyncio.timeout(self._timeout):
                sock = await self._dial()
                # From here on the socket belongs to the loop's transport, which closes it whatever goes wrong.
                _, connected = await asyncio.get_running_loop().create_connection(
                    protocol, sock=sock, ssl=self._tls, server_hostname=self._host if self._tls else None
                )
        except TimeoutError as error:
            raise UpstreamError("connect_timeout", f"no connection in {self._timeout:g} s{way}") from error
        except (OSError, UnicodeError) as error:  # refused, unknown host or no name of one, certificate not trusted
            raise UpstreamError("connect", f"no connection{way}: {error}") from error
        return connected

    async def _dial(self) -> socket.socket:
        """A TCP connection whose other end is the upstream, be it by a tunnel, or a proxy that takes absolute form."""
        loop = asyncio.get_running_loop()
        self._host.encode("idna")  # what is no name fails here; in TLS it would leave an open socket behind
        host, port = (self._host, self._port) if self._proxy is None else (self._proxy.host, self._proxy.port)
        addresses = _literal(host, port) or await loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
        if len(addresses) > 1:
            sock = await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS)
        else:
            sock = await _connected(addresses[0])
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._proxy is not None and not self.absolute_form:
                await _open_tunnel(sock, f"{_bracketed(self._host)}:{self._port}", self._proxy.authorization)
        except BaseException:
            sock.close()
            raise
        return sock


def _literal(host: str, port: int) -> list[_Address]:
    """Return what a lookup of an IPv4 address as a name would give, without the thread for lookups."""
    try:
        socket.inet_pton(socket.AF_INET, host)
    except (OSError, ValueError):
        return []
    return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]


async def _connected(address: _Address) -> socket.socket:
    family, kind, protocol, _, where = address
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


async def _open_tunnel(sock: socket.socket, target: str, authorization: bytes | None) -> None:
    """Ask the HTTP proxy at the other end of `sock` to pass bytes on to `target` (RFC 9110, section 9.3.6)."""
    loop = asyncio.get_running_loop()
    request = b"CONNECT %b HTTP/1.1\r\nhost: %b\r\n" % (target.encode("ascii"), target.encode("ascii"))
    if authorization is not None:
        request += b"proxy-authorization: " + authorization + b"\r\n"
    await loop.sock_sendall(sock, request + b"\r\n")
    head = b""
    while b"\r\n\r\n" not in head:
        piece = await loop.sock_recv(sock, 4096)
        head += piece
        if not piece or len(head) > _LONGEST_REFUSAL:
            raise ConnectionError("it did not answer CONNECT")
    status = re.match(rb"HTTP/1\.[01] (\d{3}\b[ -~]{,100})", head)  # printable, as it goes into logs
    if status is None:
        raise ConnectionError("its answer to CONNECT is not HTTP/1.1")
    if not status[1].startswith(b"2"):
        raise ConnectionError(f"it refused CONNECT: {status[1].decode('ascii')}")
    if not head.endswith(b"\r\n\r\n"):  # in TLS it is ours to speak first
        raise ConnectionError("it sent more than an answer to CONNECT")


@dataclass(frozen=True)
class HttpProxy:
    """
    Attributes:
        authorization: value of the `proxy-authorization` header; None without a user.
    """

    host: str
    port: int
    authorization: bytes | None

    @property
    def address(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"


def proxy_for(scheme: str, host: str, port: int, environment: Mapping[str, str]) -> HttpProxy | None:
    """Return the proxy that the environment names for an address; None for a direct connection.

    Raises:
        ConfigError: it cannot be used.
    """
    _, exceptions = _variable("no", environment)
    hosts = {f"{_bracketed(host)}:{port}", host}  # urllib's own function does not know the bare form of an IPv6 address
    if any(proxy_bypass_environment(name, {"no": exceptions}) for name in hosts):
        return None
    name, value = _variable(scheme, environment)
    if not value:
        name, value = _variable("all", environment)
    return _parsed(name, value) if value else None


def _variable(kind: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """The name and value of `<kind>_proxy`; the one in lower case goes first, and empty it means none."""
    lower = f"{kind}_proxy"
    name = lower if lower in environment else lower.upper()
    return name, environment.get(name, "").strip()


def _parsed(variable: str, value: str) -> HttpProxy:
    # The value stays out of the message: it may hold a password.
    wrong = ConfigError(f"{variable}: expected an HTTP proxy as http://[user:password@]host[:port]; found another URL")
    try:
        url = urlsplit(value if "://" in value else f"http://{value}")
        port = url.port or 80
        host = (url.hostname or "").encode("idna").decode("ascii")
    except ValueError:
        raise wrong from None
    if url.scheme != "http" or not host or url.path not in ("", "/") or url.query or url.fragment:
        raise wrong
    authorization = None
    if url.username is not None:
        user, password = unquote_to_bytes(url.username), unquote_to_bytes(url.password or "")
        authorization = b"Basic " + b64encode(user + b":" + password)
    return HttpProxy(host, port, authorization)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
