"""A real HTTP service that answers as a test scripts it."""

import asyncio
import importlib
import itertools
import json
import socket
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from reward_runs import ISOLATION

_numbers = itertools.count()


@dataclass
class Service:
    """Answers one scripted reply after the other, the last one for ever, and keeps what it was asked.

    A reply is (status, body), where a body of bytes is sent as it is and anything else as JSON; None hangs until the
    caller goes away.
    """

    replies: list[tuple[int, Any] | None]
    url: str = ""
    requests: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    open: int = 0
    most_open: int = 0
    hold: float = 0.0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await self._answer(scope, receive, send)
        finally:
            self.open -= 1

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        reply = self.replies[min(len(self.requests), len(self.replies) - 1)]
        self.bodies.append(body)
        self.requests.append({"path": scope["path"], **json.loads(body)})
        self.headers.append({name.decode(): text.decode() for name, text in scope["headers"]})
        if reply is None:
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        await asyncio.sleep(self.hold)
        status, content = reply
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        await send(
            {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]}
        )
        await send({"type": "http.response.body", "body": raw})


@pytest.fixture(scope="session", autouse=True)
def children() -> Iterator[None]:
    """The child processes end with the tests."""
    yield
    ISOLATION.close()


@pytest.fixture(scope="session")
def _modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modules")
    sys.path.append(str(folder))
    return folder


@pytest.fixture
def mine(_modules: Path) -> Callable[[str], str]:
    """`mine(source)` writes a module of the user's, and returns its name."""

    def written(source: str) -> str:
        name = f"mine_{next(_numbers)}"
        (_modules / f"{name}.py").write_text(textwrap.dedent(source))
        importlib.invalidate_caches()
        return name

    return written


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Any]]:
    """`await serve(reply, ...)` starts a service on a free port."""
    running: list[tuple[uvicorn.Server, asyncio.Task[None]]] = []

    async def start(*replies: tuple[int, Any] | None) -> Service:
        service = Service(list(replies))
        listener = socket.create_server(("127.0.0.1", 0))  # it listens already: a caller may come before uvicorn is up
        server = uvicorn.Server(uvicorn.Config(service, log_level="error", lifespan="off"))
        running.append((server, asyncio.create_task(server.serve(sockets=[listener]))))
        service.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        return service

    yield start
    for server, task in running:
        server.should_exit = True
        await task
