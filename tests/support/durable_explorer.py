"""The scripted Explorer as a process that can be killed: like Trinity's, it finds its recorded chats again.

    python durable_explorer.py PORT JOURNAL

The recorded chats are in a SQLite database beside the journal, `history_of` it, as in Trinity: there others may say
that one is not consumed by its first reward. The journal has a line of JSON for each that was recorded, and each commit
with what it took: what had effect. The queue and the counters are in memory, as in Trinity.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import uvicorn
from scripted import ScriptedExplorer, completion
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response


class DurableExplorer(ScriptedExplorer):
    """A scripted Explorer that goes on from its history.

    Attributes:
        name: makes its answers' ids others than those of an earlier life.
    """

    def __init__(self, journal: Path) -> None:
        super().__init__(journal)
        self.name = f"{os.getpid()}.{time.monotonic_ns()}"
        self._history = sqlite3.connect(history_of(journal), isolation_level=None)
        self._history.execute("PRAGMA synchronous=OFF")  # it is killed, and the machine goes on
        self._history.execute("CREATE TABLE IF NOT EXISTS proxy_history (msg_id TEXT PRIMARY KEY, consumed INTEGER)")
        self.choices = dict.fromkeys(
            (msg_id for (msg_id,) in self._history.execute("SELECT msg_id FROM proxy_history")), 1
        )

    def _record(self, answer: dict[str, Any]) -> None:
        self._history.execute("INSERT INTO proxy_history VALUES (?, 0)", (answer["id"],))
        super()._record(answer)

    def reply(self, msg_id: str, body: dict[str, Any]) -> dict[str, Any]:
        return completion(f"{self.name}-{msg_id}", f"policy says to {body['messages'][-1]['content']}")

    async def _feedback(self, request: Request) -> Response:
        try:
            body = await request.json()
        except (ClientDisconnect, ValueError):  # cut, or garbled: Trinity says 500
            return Response(status_code=500)
        left = self._history.execute("SELECT msg_id FROM proxy_history WHERE consumed = 0")
        self.recorded = {msg_id for (msg_id,) in left}
        consumed = [(msg_id,) for msg_id in self.recorded.intersection(body["msg_ids"])]
        self._history.executemany("UPDATE proxy_history SET consumed = 1 WHERE msg_id = ?", consumed)
        return await super()._feedback(request)

    async def _chat(self, request: Request) -> Response:
        try:
            await request.json()
        except (ClientDisconnect, ValueError):
            return JSONResponse({"error": {"message": "no JSON"}}, 400)
        return await super()._chat(request)


def history_of(journal: Path) -> Path:
    return journal.with_suffix(".db")


def journal_of(path: Path) -> list[dict[str, Any]]:
    """What a journal says, in order; a last line that a kill cut is not there."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines[:-1]]


if __name__ == "__main__":
    explorer = DurableExplorer(Path(sys.argv[2]))
    uvicorn.run(explorer.app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
