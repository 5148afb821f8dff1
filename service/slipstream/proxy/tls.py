"""TLS towards agents: one loop that accepts connections, takes their handshakes, and hands them to their protocol.

uvloop's own server would do so with one context for good. This one looks at the certificate's files and takes the next
connections with what they hold then, and it can tell a client that speaks plain HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from slipstream.errors import ConfigError
from slipstream.proxy.refusal import Refusal
from slipstream.settings.listen import Listen, ListenTls

_log = structlog.get_logger(__name__)

_LOOK_AFTER = 1.0
"""Seconds between two looks at the files, of a file's times and size alone."""

_AT_ONCE = 100
"""Connections accepted in one turn of the loop."""

_PAUSE = 1.0
"""Seconds that nothing is accepted where the process has no more file descriptors."""

_QUIET = 1.0
"""Seconds after a line about a failed handshake until the next one."""

_HANDSHAKE = 0x16
"""First byte of a TLS connection: the type of the record that holds a ClientHello."""

_LINGER = 1.0
"""Seconds that a client which speaks plain HTTP has to read why it is refused."""

_PLAIN = Refusal(400, "tls_expected", "Slipstream: this port speaks TLS. Use https:// in the base URL.")

_Seen = tuple[tuple[int, int, int, int], ...]


class Certificates:
    """The TLS context of the listener, made again when its files change.

    Raises:
        ConfigError: a file cannot be used. Later that is logged, and the context stays as it was.
    """

    def __init__(self, tls: ListenTls) -> None:
        self._tls = tls
        self._seen = _marks(tls)
        self.context = server_context(tls)

    def look(self) -> None:
        """Read the files again if they have changed."""
        seen = _marks(self._tls)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self.context = server_context(self._tls)
        except ConfigError as error:  # also between the new certificate and its key, which are two files
            _log.error("certificate_not_read", problems=error.problems, used="the certificate that was used before")
            return
        _log.info("certificate_read", certificate=str(self._tls.certificate))


def certificates(listen: Listen) -> Certificates | None:
    """The certificates of the address; None where it speaks plain HTTP.

    Raises:
        ConfigError: a file cannot be used.
    """
    return None if listen.tls is None else Certificates(listen.tls)


def server_context(tls: ListenTls) -> ssl.SSLContext:
    """
    Raises:
        ConfigError: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(tls.certificate, tls.key, password="")  # else OpenSSL would ask on the terminal
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"listen.tls: expected a certificate and its key in PEM, without a passphrase, in {tls.certificate} and "
            f"{tls.key}; found none that can be used ({error})"
        ) from None
    if tls.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(tls.client_ca)
        except OSError as error:
            raise ConfigError(
                f"listen.tls.client_ca: expected certificates of authorities in PEM in {tls.client_ca}; found none "
                f"that can be used ({error})"
            ) from None
    return context


class TlsListener:
    """
    Args:
        protocol: made for each connection whose handshake is done.
        timeout: seconds for a handshake.
        shutdown: seconds in which a client has to read the rest of an answer once its connection is closed.
        most: handshakes under way; further connections are closed.
    """

    def __init__(
        self,
        listener: socket.socket,
        certificates: Certificates,
        protocol: Callable[[], asyncio.Protocol],
        *,
        timeout: float,
        shutdown: float,
        most: int,
    ) -> None:
        self._listener = listener
        self._certificates = certificates
        self._protocol = protocol
        self._timeout = timeout
        self._shutdown = shutdown
        self._most = most
        self._opening: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._looking: asyncio.TimerHandle | None = None
        self._quiet_until = 0.0

    def start(self) -> None:
        """Accept connections from now on."""
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener, self._accept)
        self._look()

    def close(self) -> None:
        """Accept no more. Handshakes that are under way go on."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        if self._looking is not None:
            self._looking.cancel()

    async def settled(self) -> None:
        """Wait for the handshakes that are under way."""
        if self._opening:
            await asyncio.wait(self._opening)

    def abort(self) -> None:
        """End the handshakes that are under way."""
        for task in self._opening:
            task.cancel()

    def _look(self) -> None:
        self._certificates.look()
        self._looking = self._loop.call_later(_LOOK_AFTER, self._look)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                sock, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no more file descriptors, mostly
                _log.warning("connection_not_accepted", error=str(error))
                self._loop.remove_reader(self._listener)
                self._loop.call_later(_PAUSE, self._again)
                return
            if len(self._opening) >= self._most:
                sock.close()
                continue
            task = self._loop.create_task(self._open(sock))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    def _again(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener, self._accept)

    async def _open(self, sock: socket.socket) -> None:
        """Take one connection's handshake. From then on the socket is its protocol's."""
        handed_over = False
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(self._timeout):
                first = await self._first_byte(sock)
                if first != bytes([_HANDSHAKE]):
                    if first:
                        await self._refuse_plain(sock)
                    return
                handed_over = True
                await self._loop.connect_accepted_socket(
                    self._protocol,
                    sock,
                    ssl=self._certificates.context,
                    ssl_handshake_timeout=self._timeout,
                    ssl_shutdown_timeout=self._shutdown,
                )
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            self._tell(error)
        finally:
            if not handed_over:
                sock.close()

    async def _first_byte(self, sock: socket.socket) -> bytes:
        """The first byte that the client sends, which stays to be read; empty if it goes away."""
        readable = asyncio.Event()
        self._loop.add_reader(sock, readable.set)
        try:
            await readable.wait()
        finally:
            self._loop.remove_reader(sock)
        return sock.recv(1, socket.MSG_PEEK)

    async def _refuse_plain(self, sock: socket.socket) -> None:
        body = _PLAIN.body()
        head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
        await self._loop.sock_sendall(sock, head + b"content-length: %d\r\n\r\n%b" % (len(body), body))
        sock.shutdown(socket.SHUT_WR)
        with contextlib.suppress(TimeoutError):  # closed over unread bytes, the answer could be lost with them
            async with asyncio.timeout(_LINGER):
                while await self._loop.sock_recv(sock, 65536):
                    pass

    def _tell(self, error: Exception) -> None:
        """One line a second at most: whoever tries must not fill the disk."""
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET
            _log.warning("tls_handshake_failed", reason=str(error) or type(error).__name__)


def _marks(tls: ListenTls) -> _Seen:
    """Return a value that changes with the files: Kubernetes swaps a link, editors write another file or the same."""
    return tuple(_mark(path) for path in (tls.certificate, tls.key, tls.client_ca) if path is not None)


def _mark(path: Path) -> tuple[int, int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0, 0
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
