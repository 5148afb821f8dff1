"""Other HTTP servers that read the same bytes: node's http, uvicorn with h11, and nginx before an upstream."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
import subprocess
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import h11
import pytest
import uvicorn
from debian import installed
from ports import free_port
from reading import read_requests
from serving import until

Read = tuple[bytes, bytes, bytes]
"""A request as a server read it: method, target, body."""

QUIET, LONG_QUIET = 0.25, 5.0
"""Seconds without a byte after which a server has said all that it will: mostly, and even where the machine is slow."""

AT_ONCE = 16

_NODE = """
const server = require("http").createServer((request, response) => {
  const pieces = [], port = request.socket.remotePort;
  request.on("data", (piece) => pieces.push(piece));
  request.on("end", () => {
    const read = [request.method, request.url, Buffer.concat(pieces).toString("base64")];
    console.log(JSON.stringify([port, read]));
    response.end();
  });
  request.on("error", () => {});
});
server.listen(0, "127.0.0.1", () => console.log(JSON.stringify(server.address().port)));
"""

_NGINX = """
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error.log emerg;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://127.0.0.1:{upstream};
      proxy_http_version 1.1;
      proxy_set_header x-client-port $remote_port;
    }}
  }}
}}
"""


class Reference:
    """A server, and what it has read, by the port of the client."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = 0
        self.read: dict[int, list[Read]] = defaultdict(list)

    async def reads(self, data: bytes, quiet: float = QUIET) -> list[Read]:
        """Send bytes over a connection of their own; returns the requests that the server read whole."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        client = writer.get_extra_info("sockname")[1]
        self.read.pop(client, None)
        with contextlib.suppress(ConnectionError, TimeoutError):
            writer.write(data)
            while await asyncio.wait_for(reader.read(65536), quiet):
                pass
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        return self.read.pop(client, [])


async def read_by(reference: Reference, cases: Sequence[bytes]) -> list[list[Read]]:
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(data: bytes) -> list[Read]:
        async with turn:
            return await reference.reads(data)

    return list(await asyncio.gather(*map(one, cases)))


@contextlib.asynccontextmanager
async def node() -> AsyncIterator[Reference]:
    """Node's own HTTP server. Skipping is no choice: the slow tier has Node."""
    program = shutil.which("node") or pytest.fail("needs Node")
    reference = Reference("node")
    process = await asyncio.create_subprocess_exec(program, "-e", _NODE, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    reference.port = json.loads(await process.stdout.readline())
    lines = process.stdout

    async def take() -> None:
        while line := await lines.readline():
            port, (method, url, body) = json.loads(line)
            reference.read[port].append((method.encode(), url.encode("latin-1"), base64.b64decode(body)))

    taking = asyncio.create_task(take())
    try:
        yield reference
    finally:
        process.kill()
        await process.wait()
        await taking


@contextlib.asynccontextmanager
async def uvicorn_h11() -> AsyncIterator[Reference]:
    """uvicorn, whose reader is h11 here and llhttp by default."""
    reference = Reference(f"uvicorn with h11 {h11.__version__}")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        query = scope["query_string"]
        target = scope["raw_path"] + (b"?" + query if query else b"")
        reference.read[scope["client"][1]].append((scope["method"].encode(), target, body))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    config = uvicorn.Config(app, "127.0.0.1", 0, http="h11", ws="none", lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[method-assign]
    running = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    reference.port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield reference
    finally:
        server.should_exit = True
        await running


@contextlib.asynccontextmanager
async def nginx(folder: Path) -> AsyncIterator[Reference]:
    """nginx, and an upstream that notes what nginx sends on."""
    reference = Reference("nginx")

    async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = b""
        while piece := await _read(reader):
            data += piece
            row = read_requests(data)
            if row.state == "bad":  # nginx sends on what no reader has to take, such as DEL in a field's value
                break
            if row.messages:
                message = row.messages[0]
                port = int(message.values(b"x-client-port")[0])
                reference.read[port].append((*message.first, message.body))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                break
        writer.close()

    server = await asyncio.start_server(upstream, "127.0.0.1", 0)
    reference.port = free_port()
    config = folder / "nginx.conf"
    behind = server.sockets[0].getsockname()[1]
    config.write_text(_NGINX.format(folder=folder, port=reference.port, upstream=behind))
    command = [installed("nginx-light", "nginx"), "-c", str(config), "-p", str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)  # noqa: ASYNC220

    async def accepts() -> bool:
        assert process.poll() is None, process.stderr and process.stderr.read()
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", reference.port)
            writer.close()
            return True
        return False

    try:
        await until(accepts)
        yield reference
    finally:
        process.terminate()
        process.wait(20)
        if process.stderr:
            process.stderr.close()
        server.close()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(65536)
    except ConnectionError:
        return b""
