"""An Explorer that answers at once: Trinity's HTTP over two tables in memory, for measuring the sidecar's side of it.

    python benchmarks/explorer_stub.py [PORT]

Prints its port. It keeps what the sidecar's delivery goes by: an id of its own for each answer, the first reward of an
answer wins, counters that rise, and a queue that a commit empties.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from typing import Any

import httptools
import uvloop
from bench import poison

_TEXT = "The policy's own words, as long as an answer commonly is. " * 12
"""About 700 bytes, so that an answer has about 1 KB."""


class Explorer:
    """What the Explorer knows."""

    def __init__(self) -> None:
        self._ids = itertools.count()
        self._recorded: set[str] = set()
        self._queue: list[str] = []
        self._chats = self._ready = self._step = 0

    def answer(self, path: bytes, body: bytes) -> dict[str, Any]:
        if path == b"/v1/chat/completions":
            return self._chat(*(poison.said_by(body) or (_TEXT, {})))
        if path == b"/feedback":
            return self._feedback(json.loads(body)["msg_ids"])
        if path == b"/commit":
            self._queue.clear()
            self._step += 1
            return {"status": "success"}
        if path == b"/v1/models":
            return {"object": "list", "data": [{"id": "policy"}]}
        return {
            "rollout/model_0/total_request_count": self._chats,
            "rollout/model_0/model_version": 0,
            "rollout/total_experience_count": self._chats,
            "rollout/ready_experience_count": self._ready,
            "explore_step_num": self._step,
        }

    def _chat(self, text: str, fields: dict[str, Any]) -> dict[str, Any]:
        self._chats += 1
        msg_id = f"chatcmpl-{next(self._ids):032x}"
        self._recorded.add(msg_id)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return {
            "id": msg_id,
            "object": "chat.completion",
            "created": 1_760_000_000,
            "model": "policy",
            "choices": [choice | fields],
            "usage": {"prompt_tokens": 400, "completion_tokens": 150, "total_tokens": 550},
        }

    def _feedback(self, msg_ids: list[str]) -> dict[str, Any]:
        for msg_id in msg_ids:
            if msg_id in self._recorded:
                self._recorded.remove(msg_id)
                self._queue.append(msg_id)
                self._ready += 1
        return {"status": "success"}


class Connection(asyncio.Protocol):
    """One connection: requests in, answers out."""

    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)
        self._path = b""
        self._body: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._path = b""
        self._body.clear()

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        body = json.dumps(self._explorer.answer(self._path, b"".join(self._body))).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        self._transport.write(head + body)
        if not self._parser.should_keep_alive():
            self._transport.close()


async def _serve(port: int) -> None:
    explorer = Explorer()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(explorer), "127.0.0.1", port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
