"""The head of an answer, as the agent gets it."""

from __future__ import annotations

from slipstream.http.connection import Connection
from slipstream.http.headers import answer_fields
from slipstream.proxy.request import Agent, Request


def answer_head(request: Request, connection: Connection, agent: Agent) -> tuple[bytes, bool]:
    """The head, and whether the body leaves in chunks: the agent has to learn where it ends."""
    status, framed = connection.status, False
    fields, sized = answer_fields(connection.headers, length=status != 204)
    bodiless = request.method == b"HEAD" or status in (204, 304)
    if not sized and not bodiless:
        if request.http11:
            framed = True
            fields.append(b"transfer-encoding: chunked\r\n")
        else:
            request.keep_alive = False  # the end of the connection is the end of the body
    line = b"HTTP/1.1 %d %b\r\n" % (status, connection.reason)
    return b"".join((line, *fields, agent.closing(request), b"\r\n")), framed
