"""The decision on a request whose head is here: refused, or passed on, and in which form."""

from __future__ import annotations

from typing import NamedTuple

from slipstream.http.headers import UnknownCoding, content_length
from slipstream.proxy.gateway import Gateway
from slipstream.proxy.guard import FREELY, Admitted
from slipstream.proxy.refusal import CHUNKS_OF_OLD, TOO_MANY_STREAMS, UNKNOWN_CODING, Refusal, body_too_large
from slipstream.proxy.request import Agent, Request
from slipstream.proxy.route import Route
from slipstream.proxy.upload import Upload


class Departure(NamedTuple):
    """The form in which a request leaves.

    Attributes:
        chunked: its body leaves in chunks.
        upload: the body, where it is not here in full.
    """

    head: bytes
    chunked: bool
    upload: Upload | None


def admit(request: Request, route: Route, gateway: Gateway, agent: Agent) -> Admitted | Refusal:
    """Return the rights of the caller, or why the request is not taken."""
    if request.refusal is not None:
        return request.refusal
    return FREELY if gateway.guard is None else gateway.guard.admit(request, route.tapped, agent.peer)


def departure(request: Request, route: Route, gateway: Gateway) -> Departure | Refusal:
    """The form in which a request leaves, or why it does not: it exceeds a limit, or its body cannot be passed on."""
    if route.metrics.in_flight >= gateway.limits.streams:
        return TOO_MANY_STREAMS
    longest = gateway.longest_body(route, request.target)
    pieces = request.pieces
    here = 0 if not pieces else len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
    upload = None
    if not request.complete:
        upload = Upload(here, longest)
        here = max(here, content_length(request.headers))
    if here > longest.most:
        return body_too_large(longest)
    try:
        head, chunked = route.head(request)
    except UnknownCoding:
        request.keep_alive = False  # others may see another end of this request
        return UNKNOWN_CODING
    if chunked and not request.http11:
        request.keep_alive = False
        return CHUNKS_OF_OLD
    return Departure(head, chunked, upload)
