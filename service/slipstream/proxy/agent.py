"""The agent's side: an HTTP/1.1 server's connection, on asyncio.

A web framework's request, task and queues would cost more than everything else the proxy does. In which order and by
when requests are answered is here, and what becomes of the connection; `Forward` answers them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from slipstream.http.deadline import Deadline
from slipstream.http.tls_buffers import limit_unsent
from slipstream.http.writing import write
from slipstream.proxy.forward import Forward
from slipstream.proxy.gateway import Gateway
from slipstream.proxy.reader import RequestReader
from slipstream.proxy.refusal import REASONS, body_too_slow, head_too_slow
from slipstream.proxy.request import Request
from slipstream.proxy.routed_forward import RoutedForward

_NEVER = float("inf")

_REST_WITHIN = 5.0
"""Seconds for the rest of a request that was answered before it was there; it is read and thrown away, because a
connection that is closed over unread bytes is reset, and the answer may be lost with it."""

_MOST_AHEAD = 32
_MOST_BYTES_AHEAD = 64 * 1024
"""Requests, and bytes of their bodies, that wait for the answers before theirs."""


class AgentConnection(RequestReader):
    """One connection of an agent; its requests are answered one after another.

    Args:
        gateway: says where a request goes, and knows all connections.
    """

    __slots__ = (
        "_close_after",
        "_deadline",
        "_forward",
        "_paused",
        "_reading",
        "_takes_answers",
        "_transport",
        "_unwanted",
    )

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(gateway)
        self._transport: asyncio.Transport | None = None
        self._deadline = Deadline(asyncio.get_running_loop(), self._too_slow)
        self._forward: Forward | None = None
        self._unwanted: Request | None = None
        """A request that was answered before all of it was here."""
        self._close_after = False
        self._reading = True
        self._paused = False
        """Reading stood still at some time since the body's progress was last looked at."""
        self._takes_answers = True

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        limit_unsent(self._transport)
        admitted = self._gateway.admits(self)
        if not admitted:
            self._gateway.refused("connections")
            self._crowded = True
        if admitted is None:
            self._transport.abort()
        else:
            self._deadline.set(self._limits.keep_alive if admitted else _REST_WITHIN)

    def eof_received(self) -> None:
        return None  # closes the connection: an agent that can send no more is taken for one that has gone

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._parser = None
        self._requests.clear()
        self._deadline.end()
        self._gateway.gone(self)
        if self._forward is not None:
            self._forward.agent_gone()
            self._forward = None

    def pause_writing(self) -> None:
        self._takes_answers = False
        self._deadline.set(self._limits.answer_timeout)
        if self._forward is not None:
            self._forward.agent_takes(False)

    def resume_writing(self) -> None:
        self._takes_answers = True
        self._wait()
        if self._forward is not None:
            self._forward.agent_takes(True)
        else:
            self._go_on()

    # What `Forward` asks for

    def send(self, head: bytes, pieces: Sequence[bytes]) -> None:
        """Send a part of an answer; an agent that has gone swallows it, and `agent_gone` tells."""
        if self._transport is not None and (head or pieces):
            write(self._transport, head, pieces)

    def reply(self, request: Request, status: int, body: bytes, fields: bytes = b"") -> None:
        """Send a whole answer of the proxy's own, in JSON; `fields` are further lines of its head."""
        head = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%b%b\r\n"
        head %= (status, REASONS[status], len(body), fields, self.closing(request))
        self.send(head, () if request.method == b"HEAD" else (body,))

    def closing(self, request: Request) -> bytes:
        """The header field that tells the agent what becomes of its connection after this answer."""
        if self._gateway.draining or not request.keep_alive:
            self._close_after = True
            return b"connection: close\r\n"
        return b"" if request.http11 else b"connection: keep-alive\r\n"

    def cut(self) -> None:
        """Break off an answer that has started: without its end no caller takes it for the whole."""
        self._forward = None
        self._parser = None
        self._close()

    def peer(self) -> str:
        """The address at the other end, without its port; empty where it is gone."""
        return "" if self._transport is None else str((self._transport.get_extra_info("peername") or ("",))[0])

    def takes_request(self, takes: bool) -> None:
        """Read on, unless too much waits already, or leave what comes in the kernel's hands for now."""
        takes = takes and not self._far_ahead()
        if self._transport is not None and takes is not self._reading:
            self._reading = takes
            if takes:
                self._transport.resume_reading()
            else:
                self._paused = True
                self._transport.pause_reading()

    def answered(self) -> None:
        """The answer to the request under way has been sent."""
        forward, self._forward = self._forward, None
        assert forward is not None  # it is the one that says so
        if self._transport is None:
            return
        if self._gateway.stopping and not self._requests:
            self._close_after = True  # this answer's head may have left before
        if not forward.request.complete:
            self._unwanted = forward.request
            self.takes_request(True)
            self._deadline.set(_REST_WITHIN)
            # uvloop's TLS cannot end one direction alone: an agent there waits until that time is over.
            if self._close_after and not self._transport.is_closing() and self._transport.can_write_eof():
                self._transport.write_eof()  # the agent need not wait for the end of that time
        elif self._close_after:
            self._close()
        elif self._requests:
            # Not from here: a row of requests that came at once would be as many calls within each other.
            asyncio.get_running_loop().call_soon(self._go_on)
        else:
            if not self._reading:
                self.takes_request(True)
            self._wait()

    @property
    def idle_until(self) -> float:
        """Return when it is closed for being idle, by the loop's clock; infinite if it is not."""
        if self._forward is not None or self._requests or self._arriving is not None or self._fields_size:
            return _NEVER
        return _NEVER if self._transport is None or self._transport.is_closing() else self._deadline.at

    def stop(self) -> None:
        """Close the connection as soon as nothing is under way on it."""
        if self._forward is None and not self._requests and self._arriving is None:
            self._close()

    def end_stream(self) -> None:
        """End an answer that has no end of its own, so that nothing waits for it: its reader asks again, elsewhere."""
        forward = self._forward
        if forward is None or not forward.endless:
            return
        if self._takes_answers:
            forward.end_here()
        else:
            self.abort()

    def abort(self) -> None:
        """Close the connection now."""
        if self._transport is not None:
            self._transport.abort()

    # Requests

    def _go_on(self) -> None:
        """Send on what has arrived."""
        forward = self._forward
        if forward is None:
            if self._unwanted is not None and not self._rest_is_here(self._unwanted):
                return
            if not self._requests or self._close_after or not self._takes_answers or self._transport is None:
                return
            request = self._requests.popleft()
            if not self._reading:  # because of the requests behind it, of which one may still be arriving
                self.takes_request(True)
            gateway = self._gateway
            made = Forward if gateway.routing is None else RoutedForward
            self._forward = forward = made(self, request, gateway)
            forward.start()
            if not request.complete and self._forward is forward:
                self._paused = not self._reading  # while production is being connected to
                self._wait()
        elif not forward.sent:
            forward.more()
        if self._far_ahead():
            self.takes_request(False)  # an agent that sends requests ahead can wait

    def _far_ahead(self) -> bool:
        """Return whether too much waits to read on; until then the end of the agent's connection is noticed."""
        if not self._requests:
            return False
        waiting = sum(len(piece) for request in self._requests for piece in request.pieces)
        return len(self._requests) > _MOST_AHEAD or waiting > _MOST_BYTES_AHEAD

    def _head_begins(self) -> None:
        if self._forward is None and not self._requests:
            self._deadline.set(self._limits.header_timeout)  # once: bytes that trickle in do not move it

    def _abandon(self) -> bool:
        forward, self._forward = self._forward, None
        if forward is None or not forward.abandon():
            return False
        self.cut()
        return True

    def _rest_is_here(self, request: Request) -> bool:
        """Throw away what comes of a request that is answered already; returns whether that was all."""
        request.pieces.clear()
        if not request.complete:
            return False
        self._unwanted = None
        self._wait()
        if self._close_after:
            self._close()
        return True

    def _wait(self) -> None:
        """Set the limit on what is waited for now."""
        if not self._takes_answers:
            self._deadline.set(self._limits.answer_timeout)
        elif self._forward is None:
            self._deadline.set(self._limits.keep_alive)
        elif self._forward.request.complete:
            self._deadline.clear()
        else:
            self._deadline.set(self._limits.body_timeout)

    def _close(self) -> None:
        """Close the connection once what was written has left, for which the agent has as long as to read an answer."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            waiting = transport.get_write_buffer_size()  # a closed one of asyncio's TLS does not tell
            transport.close()
            if waiting:
                self._deadline.set(self._limits.answer_timeout)

    def _too_slow(self) -> None:
        transport, forward, limits = self._transport, self._forward, self._limits
        if transport is None:
            return
        if not self._takes_answers or transport.is_closing():
            self._gateway.refused("answer_timeout")
            transport.abort()
        elif forward is not None:
            if forward.request.complete:
                return
            if (forward.upload is not None and forward.upload.goes_on()) or self._paused:
                self._paused = not self._reading
                self._deadline.set(limits.body_timeout)
            else:
                forward.refuse(body_too_slow(limits.body_timeout))
        elif self._fields_size and self._unwanted is None and self._parser is not None:
            self._unreadable(head_too_slow(limits.header_timeout))
            self._go_on()
        else:
            self._close()
